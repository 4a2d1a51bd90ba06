"""UCluster's network, its losses and its schedule: sizes, and what went wrong in the notebook that
it comes from."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jet_sets import make_jet_file

from rampup.config.recipes import load
from rampup.core.settings import Settings
from rampup.errors import Refused
from rampup.recipes.ucluster.settings import check

if find_spec("tf_keras") is None:
    pytest.skip("it needs pip install 'rampup[keras]'", allow_module_level=True)

from rampup.engines.keras.setup import tf
from rampup.recipes.ucluster import model, train

NARROW: dict[str, Any] = {
    "points": 12,
    "k": 3,
    "attention_widths": [4, 8],
    "widths": [8, 8, 8, 8],
    "dense_widths": [8, 8],
}
AS_PUBLISHED: dict[str, Any] = {"mass_bins": "fixed", "points": 100}


def settings(**given: Any) -> Settings:
    defaults = {name: it.default for name, it in load("ucluster", Path()).settings.items()}
    return Settings(defaults | given)


@pytest.fixture(scope="module")
def jets(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(make_jet_file(tmp_path_factory.mktemp("jets") / "jets.h5", 90))


@pytest.fixture(scope="module")
def task(jets: str) -> train.UCluster:
    return train.UCluster(settings(data=jets, epochs=6, pretrain_epochs=2, **NARROW))


@pytest.fixture(scope="module")
def network(task: train.UCluster) -> Any:
    return task.model()


def some_points(task: train.UCluster, count: int = 8) -> Any:
    return task.parts[0][0][:count]


def count_values(variables: Any) -> int:
    return sum(int(np.prod(each.shape)) for each in variables)


# the network --------------------------------------------------------------------------------------


def test_the_published_network_has_as_many_values_as_the_authors_count() -> None:
    published = model.build_network(settings(**AS_PUBLISHED), 20)
    assert count_values(published.trainable_variables) == 186_210


@pytest.mark.parametrize("max_dim", [2, 5])
def test_the_embedding_has_as_many_dimensions_as_asked_for(max_dim: int) -> None:
    """In the notebook, 3 is written into the network, and the option has no effect."""
    found = model.build_network(settings(**NARROW, max_dim=max_dim, clusters=4), 6)
    parts = model.cut_outputs(found(tf.random.normal([2, 12, 8])), 4, max_dim)
    assert found.get_layer("centres").places.shape == (4, max_dim)
    assert [each.shape.as_list()[1:] for each in parts] == [[6], [], [4], [max_dim]]


def test_heads_stand_side_by_side() -> None:
    one, two = (model.build_network(settings(**NARROW, heads=heads), 6) for heads in (1, 2))
    assert count_values(two.trainable_variables) > count_values(one.trainable_variables)


def test_the_embedding_is_the_mean_over_the_particles(
    task: train.UCluster, network: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The notebook calls it max_pool."""
    gapnet, kept = network.get_layer("gapnet"), []
    usual = gapnet.embedding.call
    monkeypatch.setattr(
        gapnet.embedding, "call", lambda *a, **k: kept.append(usual(*a, **k)) or kept[-1]
    )
    found = gapnet(tf.constant(some_points(task)))
    assert kept[0].shape == (8, 12, 3)
    np.testing.assert_allclose(found, kept[0].numpy().mean(1), rtol=1e-5, atol=1e-6)


def test_padding_is_no_neighbour_of_a_particle() -> None:
    """It lies at (0, 0), in the middle of the jet."""
    points = np.zeros((1, 6, 8), np.float32)
    points[0, :3, :2] = [[0.01, 0], [0, 0.3], [-0.4, 0]]
    points[0, :3, model.LOG_PT] = -1.0
    is_padding = (points[..., model.LOG_PT] == 0).astype(np.float32)
    place = points[..., :2] + model.FAR * is_padding[..., None]
    near = np.sort(model.find_neighbours(tf.constant(place), 3).numpy()[0], axis=1)
    assert near[:3].tolist() == [[0, 1, 2]] * 3
    assert near[3:].tolist() == [[3, 4, 5]] * 3


def test_what_has_no_effect_has_no_gradient(task: train.UCluster, network: Any) -> None:
    """A bias before a normalisation, and what a particle scores itself. It would be nothing but
    rounding, and Adam makes steps of full size of that."""
    with tf.GradientTape() as tape:
        total = tf.reduce_sum(network(some_points(task), training=True))
    variables = network.trainable_variables
    gradients = tape.gradient(total, variables)
    held = {
        id(each) for each, gradient in zip(variables, gradients, strict=True) if gradient is None
    }
    biases = [each.bias for each in network.submodules if getattr(each, "has_bias", False)]
    attentions = [each for each in network.submodules if isinstance(each, model.Attention)]
    own = [
        weight
        for attention in attentions
        for unit in (attention.own, attention.own_score)
        for weight in unit.trainable_variables
    ]
    assert attentions and held == {id(each) for each in (*biases, *own)}


# losses -------------------------------------------------------------------------------------------


def test_the_focal_loss() -> None:
    scores = np.array([[2.0, 0.0, -1.0], [0.0, 0.0, 0.0]], np.float32)
    likely = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    found = likely[[0, 1], [0, 2]]
    expected = 10 * (1 - found) ** 4 * -np.log(found)
    np.testing.assert_allclose(model.focal_loss(np.array([0, 2]), scores), expected, rtol=1e-5)


def test_a_sharp_assignment_takes_the_nearest_centre_and_does_not_overflow() -> None:
    """With a negative alpha, as in the notebook, the farthest one wins."""
    centres = model.Centres(3)
    scores = tf.zeros([1, 6])
    centres([tf.zeros([1, 2]), scores])
    centres.places.assign([[0.0, 0.0], [3.0, 0.0], [0.0, 40.0]])
    centres.weight.assign(2.0)
    for alpha, expected in ((0.0, (1 + 4 + 1601) / 3), (1e6, 1.0)):
        centres.alpha.assign(alpha)
        loss, *distances = centres([tf.constant([[1.0, 0.0]]), scores]).numpy()[0]
        assert loss == pytest.approx(2 * expected)
        assert distances == [1.0, 4.0, 1601.0]
    centres.unit.assign(4.0)
    centres.alpha.assign(8.0)
    shares = np.exp(-2.0 * (np.array([1.0, 4.0, 1601.0]) - 1.0))
    expected = (shares * [1.0, 4.0, 1601.0]).sum() / shares.sum()
    assert centres([tf.constant([[1.0, 0.0]]), scores]).numpy()[0, 0] == pytest.approx(
        2 / 4 * expected
    )


def test_centres_that_repel_move_apart_and_do_not_gain_by_shrinking() -> None:
    centres = model.Centres(2, repels=True)
    jets, scores = tf.constant([[1.0, 0.0], [2.0, 0.0]]), tf.zeros([2, 6])
    assert np.isfinite(centres([jets, scores])).all(), "before the switch they are in one place"
    centres.weight.assign(1.0)
    centres.alpha.assign(50.0)
    found = []
    for factor in (1.0, 0.1):
        centres.places.assign(np.array([[0.9, 0.0], [2.1, 0.0]]) * factor)
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(centres([jets * factor, scores])[:, 0])
        found.append(float(loss))
        first, second = tape.gradient(loss, centres.places).numpy()[:, 0]
    assert found[0] == pytest.approx(found[1], rel=1e-4)
    centres.places.assign([[1.0, 0.0], [1.9, 0.0]])
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(centres([jets, scores])[:, 0])
    first, second = tape.gradient(loss, centres.places).numpy()[:, 0]
    assert first > 0 > second, "a step against the gradient moves them apart"


def test_the_assignment_by_probabilities_pulls_where_the_bins_say() -> None:
    centres = model.Centres(2, by_probabilities=True)
    jet, scores = tf.constant([[1.0, 0.0]]), tf.constant([[9.0, 0.0]])
    centres([jet, scores])
    centres.places.assign([[0.0, 0.0], [3.0, 0.0]])
    centres.likely.assign([[0.0, 1.0], [1.0, 0.0]])
    centres.weight.assign(1.0)
    centres.alpha.assign(1e4)
    assert centres([jet, scores]).numpy()[0].tolist() == [4.0, 1.0, 4.0]


# the schedule -------------------------------------------------------------------------------------


def test_alpha_grows_in_each_epoch_with_the_clustering_loss(
    task: train.UCluster, network: Any
) -> None:
    """In the notebook it never changes: the line that counts epochs comes after a return."""
    centres, found = network.get_layer("centres"), []
    for epoch in range(1, 7):
        task.before_epoch(network, epoch)
        found.append((float(centres.alpha), float(centres.weight)))
    slope, weight = task.settings.alpha_slope, task.settings.kmeans_weight
    assert found[:2] == [(0.0, 0.0)] * 2
    assert found[2:] == [(slope * factor, weight) for factor in (2, 3, 4, 5)]


def test_the_statistics_follow_the_number_of_samples(task: train.UCluster, network: Any) -> None:
    """In the notebook the decay stays 0.5: it reads a counter that nobody increments."""
    halving = task.settings.bn_samples
    found = []
    for samples in (0, halving - 1, halving, 2 * halving, 9 * halving):
        task.before_step(network, samples)
        found.append(float(network.get_layer("gapnet").decay))
    assert found == pytest.approx([0.5, 0.5, 0.75, 0.875, 0.99])
    layers = [each for each in network.submodules if hasattr(each, "moving_mean")]
    assert all(each.decay is network.get_layer("gapnet").decay for each in layers)


class Alone:
    """One rank, as the engine shows it to a task."""

    rank, size = 0, 1

    def __init__(self, network: Any, points: Any) -> None:
        self.network, self.points = network, points

    def predict(self) -> Any:
        return self.network(self.points, training=False).numpy()

    def broadcast(self, array: Any) -> Any:
        return array


@pytest.mark.parametrize("start", ["probabilities", "embedding"])
def test_start_clusters_come_from_a_seed(jets: str, network: Any, start: str) -> None:
    asked = settings(data=jets, epochs=6, pretrain_epochs=2, start_clusters=start, seed=5, **NARROW)
    task = train.UCluster(asked)
    centres, found = network.get_layer("centres"), []
    for _ in range(2):
        centres.places.assign(tf.zeros_like(centres.places))
        np.random.rand(3)
        task.after_epoch(network, 1, Alone(network, some_points(task, 50)))  # type: ignore[arg-type]
        assert not np.any(centres.places), "only after the last epoch of pre-training"
        task.after_epoch(network, 2, Alone(network, some_points(task, 50)))  # type: ignore[arg-type]
        found.append(centres.places.numpy())
    assert np.array_equal(*found) and len(np.unique(found[0], axis=0)) == 3
    assert float(centres.unit) == pytest.approx(train.find_unit(found[0]))


# counting -----------------------------------------------------------------------------------------


def outputs_of(nearest: Any) -> Any:
    """What a network returns that sees jets nearest to these of three centres."""
    count = len(nearest)
    distances = 1.0 - np.eye(3)[nearest]
    parts = [np.zeros((count, 6)), np.zeros((count, 1)), distances, np.zeros((count, 3))]
    return tf.constant(np.concatenate(parts, 1), tf.float32)


def test_clusters_are_matched_once_in_all_jets() -> None:
    """The mean of the best matching in each batch is too large where clusters mean nothing."""
    draws = np.random.RandomState(1)
    labels, nearest = draws.randint(0, 3, 960), draws.randint(0, 3, 960)
    accuracy, each = train.ClusterAccuracy(3, 3), []
    for low in range(0, 960, 16):
        known = np.stack([labels, labels], 1)[low : low + 16]
        single = train.ClusterAccuracy(3, 3)
        for metric in (accuracy, single):
            metric.update_state(known, outputs_of(nearest[low : low + 16]))
        each.append(float(single.result()))
    assert float(accuracy.result()) < 0.37 < np.mean(each)
    assert int(accuracy.pairs.numpy().sum()) == 960


def test_counts_of_two_ranks_add_up() -> None:
    """What the engine does: clusters that only one rank has seen are still matched."""
    labels = np.array([0, 0, 1, 1, 2, 2])
    ranks = [train.ClusterAccuracy(3, 3) for _ in range(2)]
    for rank, metric in enumerate(ranks):
        mine = labels[rank::2]
        metric.update_state(np.stack([mine, mine], 1), outputs_of((mine + 1) % 3))
    whole = train.ClusterAccuracy(3, 3)
    whole.pairs.assign(ranks[0].pairs + ranks[1].pairs)
    assert float(whole.result()) == 1.0
    whole.reset_state()
    assert not np.any(whole.pairs)


def test_the_bins_of_all_parts_have_the_edges_of_the_training_jets(task: train.UCluster) -> None:
    counts = np.bincount(task.parts[0][1][:, train.BIN], minlength=6)
    assert counts.max() - counts.min() <= 1
    assert all(part[1][:, train.BIN].max() < 6 for part in task.parts)
    assert [len(part[0]) for part in task.parts] == [57, 13, 20]


# settings -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"pretrain_epochs": 0}, "pretrain_epochs=0 is too small"),
        ({"epochs": 3, "pretrain_epochs": 3}, "leaves no epoch for the clustering loss"),
        ({"mass_bins": "quantiles"}, "mass_bins=quantiles is not known"),
        ({"widths": [8, 8]}, "4 whole numbers above 0 are needed"),
        ({"widths": [8, 8, 8, 0]}, "4 whole numbers above 0 are needed"),
        ({"points": 101}, "at most 100 particles"),
        ({"k": 65}, "k=65 neighbours, and there are 64 particles"),
        ({"clusters": 13}, "too many to be matched"),
        ({"data": "nowhere.h5"}, "nowhere.h5"),
    ],
)
def test_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(Refused, match=words):
        check(settings(**given))


def test_the_recipe_and_its_settings_are_sound() -> None:
    """Also that the class it names exists: the notebook's copies of its model fail silently."""
    check(settings())
    recipe = load("ucluster", Path())
    assert recipe.entry == f"train:{train.UCluster.__name__}"
    for name, setting in recipe.settings.items():
        assert setting.help, name
