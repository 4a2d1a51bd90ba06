"""ucluster counts clusters exactly, and fits them the same way every time."""

from itertools import permutations
from typing import Any

import numpy as np
import pytest

from rampup.errors import RampupError
from rampup.recipes.ucluster import baselines
from rampup.recipes.ucluster.clusters import (
    assign,
    count_pairs,
    fit_kmeans,
    match_clusters,
    name_clusters,
)
from rampup.recipes.ucluster.jets import read_parts

DRAWS = np.random.RandomState(3)
CENTRES = np.array([[0.0, 0.0], [4.0, 0.0], [0.0, 4.0]])


def points(count: int = 300) -> np.ndarray:
    return CENTRES[np.arange(count) % 3] + DRAWS.normal(size=(count, 2)) * 0.3


@pytest.mark.parametrize(("classes", "found"), [(3, 3), (3, 5), (4, 2), (1, 1), (5, 5)])
def test_the_matching_is_the_best_of_all(classes: int, found: int) -> None:
    for _ in range(20):
        pairs = DRAWS.randint(0, 50, (classes, found))
        size = max(classes, found)
        square = np.zeros((size, size))
        square[:classes, :found] = pairs
        best = max(
            sum(square[row, column] for row, column in enumerate(order))
            for order in permutations(range(size))
        )
        matching = match_clusters(pairs)
        assert matching.accuracy == pytest.approx(best / pairs.sum())
        agreeing = [
            pairs[row, cluster] for cluster, row in enumerate(matching.class_of) if row >= 0
        ]
        assert sum(agreeing) == best
        matched = [row for row in matching.class_of if row >= 0]
        assert len(set(matched)) == len(matched) == min(classes, found)


def test_a_greedy_matching_would_be_worse() -> None:
    matching = match_clusters(np.array([[10, 9], [9, 0]]))
    assert matching.accuracy == pytest.approx(18 / 28) and matching.class_of == (1, 0)


def test_scipy_agrees() -> None:
    optimize = pytest.importorskip("scipy.optimize")
    pairs = DRAWS.randint(0, 1000, (9, 9))
    rows, columns = optimize.linear_sum_assignment(-pairs)
    assert match_clusters(pairs).accuracy == pytest.approx(pairs[rows, columns].sum() / pairs.sum())


def test_an_average_over_batches_is_not_the_accuracy() -> None:
    """Matched batch by batch, clusters that are drawn by chance look better than they are."""
    truth, drawn = (DRAWS.randint(0, 3, 6400).astype(np.int64) for _ in range(2))
    whole = match_clusters(count_pairs(truth, drawn, 3, 3)).accuracy
    batches = [
        match_clusters(count_pairs(truth[at : at + 64], drawn[at : at + 64], 3, 3)).accuracy
        for at in range(0, 6400, 64)
    ]
    assert whole < 0.36 < 0.39 < float(np.mean(batches))


def test_pairs_add_up_over_parts() -> None:
    truth, drawn = (DRAWS.randint(0, 3, 100).astype(np.int64) for _ in range(2))
    parts = [count_pairs(truth[part::3], drawn[part::3], 3, 4) for part in range(3)]
    assert (sum(parts) == count_pairs(truth, drawn, 3, 4)).all()
    assert count_pairs(truth, drawn, 3, 4).shape == (3, 4)


def test_too_many_clusters_are_refused() -> None:
    with pytest.raises(RampupError, match="13 clusters"):
        match_clusters(np.ones((3, 13)))


def test_clusters_are_named_after_their_classes() -> None:
    matching = match_clusters(np.array([[0, 9, 1], [8, 0, 0]]))
    assert name_clusters(matching, ("W", "Z")) == [
        "cluster 0 (Z)",
        "cluster 1 (W)",
        "cluster 2 (no class)",
    ]


def test_kmeans_finds_the_centres_whatever_the_seed() -> None:
    rows = points()
    for seed in range(5):
        found = fit_kmeans(rows, 3, seed)
        nearest = assign(CENTRES, found.centres)
        assert sorted(nearest) == [0, 1, 2]
        assert np.abs(found.centres[nearest] - CENTRES).max() < 0.1
        assert (assign(rows, found.centres) == found.assigned).all()


def test_the_same_seed_gives_the_same_clusters() -> None:
    rows = DRAWS.normal(size=(500, 3))
    one, again, other = (fit_kmeans(rows, 3, seed) for seed in (1, 1, 2))
    assert (one.centres == again.centres).all() and (one.assigned == again.assigned).all()
    assert not np.array_equal(one.centres, other.centres)


def test_it_is_as_good_as_that_of_scikit_learn() -> None:
    cluster = pytest.importorskip("sklearn.cluster")
    rows = np.abs(DRAWS.normal(size=(800, 3)))
    reference = cluster.KMeans(3, n_init=10, random_state=0).fit(rows)
    assert fit_kmeans(rows, 3, 0).inertia <= 1.01 * reference.inertia_


def test_points_that_are_all_the_same_form_clusters_too() -> None:
    found = fit_kmeans(np.ones((9, 3)), 3, 0)
    assert found.inertia == 0 and np.isfinite(found.centres).all()


@pytest.mark.parametrize(
    ("rows", "words"), [(np.full((9, 2), np.nan), "finite"), (np.ones((2, 2)), "2 points")]
)
def test_what_has_no_clusters_is_refused(rows: np.ndarray, words: str) -> None:
    with pytest.raises(RampupError, match=words):
        fit_kmeans(rows, 3, 0)


@pytest.fixture(scope="module")
def parts() -> Any:
    return read_parts()


def test_baselines_on_the_jets_that_come_with_rampup(parts: Any) -> None:
    """The figures of the README."""
    train, _, third = parts
    found = baselines.measure(train, third)
    assert {name: round(float(np.mean(seeds)), 3) for name, seeds in found.items()} == {
        "mass": 0.611,
        "mass and multiplicity, standardised": 0.634,
        "rank of the mass": 0.738,
    }
    assert {len(seeds) for seeds in found.values()} == {3}


def test_baselines_never_see_a_label(parts: Any) -> None:
    train, third = parts[0].take(slice(0, 900)), parts[2].take(slice(0, 500))
    before = baselines.measure(train, third)
    train.label[:] = 0
    assert baselines.measure(train, third) == before
