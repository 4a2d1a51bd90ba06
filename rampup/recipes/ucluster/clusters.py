"""Clusters: k-means with a seed, and how well clusters agree with classes.

train.py fits the start clusters with `fit_kmeans` and counts with `match_clusters`; baselines.py
does the same without a network. Pure numpy, no framework. A label never enters a fit.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rampup.recipe import RampupError

MOST_CLUSTERS = 12
"""All ways to match that many are compared in a moment."""
RUNS = 10
"""Starts of k-means, of which the best is kept."""
MOST_ROUNDS = 300

Numbers = NDArray[np.float64]
Integers = NDArray[np.int64]


class Matching(NamedTuple):
    """Clusters with the classes that they were matched to, one to one."""

    accuracy: float
    """The part of the samples whose cluster was matched to their class."""
    class_of: tuple[int, ...]
    """The class of each cluster; -1 for a cluster that is left over."""


class KMeans(NamedTuple):
    """The best of several runs of k-means."""

    centres: Numbers
    assigned: Integers
    """The cluster of each point."""
    inertia: float
    """The sum of the squared distances of points from their centres."""


def count_pairs(truth: Integers, assigned: Integers, classes: int, clusters: int) -> Integers:
    """Return how many samples of each class (row) are in each cluster (column)."""
    pairs = np.bincount(truth * clusters + assigned, minlength=classes * clusters)
    return pairs.astype(np.int64).reshape(classes, clusters)


def match_clusters(pairs: NDArray[Any]) -> Matching:
    """Match clusters to classes so that as many samples as possible agree: exactly, not greedily.

    `pairs` counts the samples of each class (row) in each cluster (column), over all ranks.
    """
    counts = np.asarray(pairs, np.float64)
    classes, clusters = counts.shape
    if max(classes, clusters) > MOST_CLUSTERS:
        raise RampupError(
            f"{clusters} clusters and {classes} classes are too many to be matched exactly",
            f"clusters={MOST_CLUSTERS} is the most",
        )
    size = max(classes, clusters)
    square = np.zeros((size, size))
    square[:classes, :clusters] = counts
    agreeing, chosen = _best_assignment(square)
    class_of = [-1] * clusters
    for row in range(classes):
        if chosen[row] < clusters:
            class_of[chosen[row]] = row
    return Matching(agreeing / max(float(counts.sum()), 1.0), tuple(class_of))


def _best_assignment(gain: Numbers) -> tuple[float, tuple[int, ...]]:
    """Return the largest sum of one entry from each row and column, and the column of each row.

    Row after row, the best way to use each set of columns is kept; a set is the bits of a number.
    """
    best: dict[int, tuple[float, tuple[int, ...]]] = {0: (0.0, ())}
    for row in gain.tolist():
        further: dict[int, tuple[float, tuple[int, ...]]] = {}
        for used, (total, columns) in best.items():
            for column, value in enumerate(row):
                together = used | 1 << column
                is_new = together != used
                if is_new and total + value > further.get(together, (-1.0, ()))[0]:
                    further[together] = (total + value, (*columns, column))
        best = further
    ((total, columns),) = best.values()
    return total, columns


def name_clusters(matching: Matching, classes: tuple[str, ...]) -> list[str]:
    """Return a name for each cluster that says which class it was matched to."""
    names = []
    for cluster, matched in enumerate(matching.class_of):
        name = classes[matched] if matched >= 0 else "no class"
        names.append(f"cluster {cluster} ({name})")
    return names


# k-means ------------------------------------------------------------------------------------------


def fit_kmeans(points: NDArray[Any], clusters: int, seed: int, runs: int = RUNS) -> KMeans:
    """Return the best of several runs of k-means; the same points and seed give the same result."""
    rows = np.asarray(points, np.float64)
    if not np.isfinite(rows).all():
        raise RampupError(
            "k-means got points that are not finite numbers",
            "lower the learning rate: lr=1e-4",
        )
    if len(rows) < clusters:
        raise RampupError(
            f"{len(rows)} points can't form {clusters} clusters", f"clusters={max(1, len(rows))}"
        )
    # this generator's numbers never change between versions of numpy
    draws = np.random.RandomState(seed)
    found = [_run_once(rows, _choose_starts(rows, clusters, draws)) for _ in range(runs)]
    return min(found, key=lambda it: it.inertia)


def assign(points: NDArray[Any], centres: NDArray[Any]) -> Integers:
    """Return the nearest centre of each point."""
    nearest: Integers = _square_distances(np.asarray(points, np.float64), centres).argmin(1)
    return nearest


def _square_distances(rows: Numbers, centres: NDArray[Any]) -> Numbers:
    found: Numbers = np.square(rows[:, None, :] - centres[None, :, :]).sum(2)
    return found


def _choose_starts(rows: Numbers, clusters: int, draws: np.random.RandomState) -> Numbers:
    """Draw points far from those drawn before: the chance grows with the squared distance."""
    chosen = [rows[draws.randint(len(rows))]]
    for _ in range(1, clusters):
        nearest = _square_distances(rows, np.stack(chosen)).min(1)
        reached = np.cumsum(nearest)
        place = int(np.searchsorted(reached, draws.random_sample() * reached[-1], side="right"))
        chosen.append(rows[min(place, len(rows) - 1)])
    return np.stack(chosen)


def _run_once(rows: Numbers, centres: Numbers) -> KMeans:
    assigned = np.full(len(rows), -1)
    for _ in range(MOST_ROUNDS):
        distances = _square_distances(rows, centres)
        nearest = distances.argmin(1)
        if np.array_equal(nearest, assigned):
            break
        assigned = nearest
        centres = centres.copy()
        for cluster in range(len(centres)):
            members = rows[assigned == cluster]
            # a cluster that lost all its points gets the one that is farthest from its own
            centres[cluster] = members.mean(0) if len(members) else rows[distances.min(1).argmax()]
    inertia = float(_square_distances(rows, centres)[np.arange(len(rows)), assigned].sum())
    return KMeans(centres, assigned.astype(np.int64), inertia)
