"""UCluster: jets of W, Z and top quarks, clustered without their labels.

A graph attention network first learns the mass bin of a jet, through an embedding of a few numbers.
Then k-means finds clusters, and a soft k-means loss pulls the embeddings of each cluster together.
Labels are counted afterwards: the clusters are matched to the classes, once, over all jets.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras as keras
from numpy.typing import NDArray

from rampup.keras import ArrayData, Clustering, Ranks, Task
from rampup.recipe import Settings
from rampup.recipes.ucluster.clusters import (
    count_pairs,
    fit_kmeans,
    match_clusters,
    name_clusters,
)
from rampup.recipes.ucluster.jets import (
    CLASSES,
    FIXED_EDGES,
    quantile_bins,
    read_parts,
)
from rampup.recipes.ucluster.model import (
    Outputs,
    bn_decay,
    build_network,
    cut_outputs,
    focal_loss,
)
from rampup.recipes.ucluster.settings import find_jets

BIN, LABEL = 0, 1
"""Columns of what is known of a jet."""
ACCURACY = "clustering_accuracy"


class UCluster(Task):
    clustering_metric = f"val_{ACCURACY}"

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        found = read_parts(find_jets(settings))
        if settings.mass_bins == "fixed":
            self.bins, bins = len(FIXED_EDGES) - 1, [jets.mass_bin for jets in found]
        else:
            self.bins, bins = settings.bins, find_quantile_bins(found, settings.bins)
        self.parts = [
            (jets.points[:, : settings.points], np.stack([mass_bin, jets.label], 1))
            for jets, mass_bin in zip(found, bins, strict=True)
        ]

    def data(self) -> tuple[ArrayData, ArrayData]:
        train, validation, _ = self.parts
        return ArrayData(*train), ArrayData(*validation)

    def model(self) -> keras.Model:
        return build_network(self.settings, self.bins)

    def compile_settings(self) -> Mapping[str, Any]:
        settings = self.settings

        def loss(known: Any, found: Any) -> Any:
            parts = self._cut(found)
            return focal_loss(known[:, BIN], parts.scores) + parts.clustering

        def focal(known: Any, found: Any) -> Any:
            return focal_loss(known[:, BIN], self._cut(found).scores)

        def bin_accuracy(known: Any, found: Any) -> Any:
            guessed = tf.argmax(self._cut(found).scores, 1)
            return tf.cast(tf.equal(guessed, tf.cast(known[:, BIN], tf.int64)), tf.float32)

        accuracy = ClusterAccuracy(settings.clusters, settings.max_dim)
        return {"loss": loss, "metrics": [focal, bin_accuracy, accuracy]}

    # the schedule ---------------------------------------------------------------------------------

    def before_step(self, model: keras.Model, samples: int) -> None:
        model.get_layer("gapnet").decay.assign(bn_decay(samples, self.settings.bn_samples))

    def before_epoch(self, model: keras.Model, epoch: int) -> None:
        """Set the clustering loss, which begins after exactly `pretrain_epochs` epochs."""
        settings, centres = self.settings, model.get_layer("centres")
        since = epoch - settings.pretrain_epochs
        centres.alpha.assign(settings.alpha_slope * (since + 1) if since > 0 else 0.0)
        centres.weight.assign(settings.kmeans_weight if since > 0 else 0.0)

    def after_epoch(self, model: keras.Model, epoch: int, ranks: Ranks) -> None:
        """Fit the start clusters to the jets of all ranks, after the last epoch of pre-training."""
        if epoch != self.settings.pretrain_epochs:
            return
        centres = model.get_layer("centres")
        found = self._cut(ranks.predict())
        starts = [np.zeros(kept.shape, np.float32) for kept in (centres.places, centres.likely)]
        if ranks.rank == 0:
            starts = self._fit(found)
        places, likely = (ranks.broadcast(start) for start in starts)
        centres.places.assign(places)
        centres.likely.assign(likely)
        centres.likely_unit.assign(find_unit(likely))
        if self.settings.alpha_unit != "one":
            centres.unit.assign(find_unit(places))

    def _fit(self, found: Outputs) -> list[NDArray[np.float32]]:
        """Return the start clusters' centres in the embedding and among the probabilities."""
        settings, likely = self.settings, tf.nn.softmax(found.scores).numpy()
        fitted_on = found.embedding if settings.start_clusters == "embedding" else likely
        members = fit_kmeans(fitted_on, settings.clusters, settings.seed).assigned
        masks = [members == each for each in range(settings.clusters)]
        return [
            np.stack([rows[mask].mean(0) for mask in masks]).astype(np.float32)
            for rows in (found.embedding, likely)
        ]

    # what people look at --------------------------------------------------------------------------

    @property
    def switches(self) -> Mapping[int, str]:
        return {self.settings.pretrain_epochs + 1: "clustering loss"}

    def clustering(self, metrics: Mapping[str, Any], truth: Any, predicted: Any) -> Clustering:
        pairs = metrics[ACCURACY].pairs.numpy()
        matching, found = match_clusters(pairs), self._cut(predicted)
        return Clustering(
            classes=CLASSES,
            names=name_clusters(matching, CLASSES),
            class_of=matching.class_of,
            pairs=pairs,
            points=found.embedding,
            truth=truth[:, LABEL],
            assigned=found.distances.argmin(1),
        )

    def results(self, model: keras.Model, ranks: Ranks) -> Mapping[str, Any]:
        """Count on the third part of the jets, which no choice was made on."""
        points, known = self.parts[2]
        if not len(points):
            return {}
        found = self._cut(ranks.predict(ArrayData(points, known)))
        nearest = found.distances.argmin(1)
        pairs = count_pairs(known[:, LABEL], nearest, len(CLASSES), self.settings.clusters)
        bins = found.scores.argmax(1) == known[:, BIN]
        return {
            "third_clustering_accuracy": round(match_clusters(pairs).accuracy, 4),
            "third_bin_accuracy": round(float(bins.mean()), 4),
        }

    def _cut(self, found: Any) -> Outputs:
        return cut_outputs(found, self.settings.clusters, self.settings.max_dim)


def find_quantile_bins(parts: Sequence[Any], count: int) -> list[NDArray[np.int64]]:
    """Return the bins of the jets of each part, by the masses of the training jets."""
    masses = np.concatenate([jets.mass for jets in parts])
    bins = quantile_bins(masses, count, np.arange(len(parts[0])))
    return np.split(bins, np.cumsum([len(jets) for jets in parts[:-1]]))


def find_unit(places: NDArray[np.float32]) -> float:
    """Return the smallest squared distance of two centres."""
    distances = np.square(places[:, None] - places).sum(-1)
    return float(distances[~np.eye(len(places), dtype=bool)].min())


@keras.utils.register_keras_serializable("ucluster")
class ClusterAccuracy(keras.metrics.Metric):  # type: ignore[misc]
    """The part of the jets whose nearest centre was matched to their class.

    It counts pairs of class and cluster, which the engine adds up over all ranks. The clusters are
    matched once, in these counts: the mean of what each batch would match best is too large.
    """

    def __init__(self, clusters: int, max_dim: int, name: str = ACCURACY, **named: Any) -> None:
        super().__init__(name=name, **named)
        self.clusters, self.max_dim = clusters, max_dim
        shape = [len(CLASSES), clusters]
        self.pairs = self.add_weight(
            name="pairs", shape=shape, initializer="zeros", dtype=tf.float64
        )

    def update_state(self, known: Any, found: Any, sample_weight: Any = None) -> None:
        parts = cut_outputs(found, self.clusters, self.max_dim)
        nearest = tf.argmin(parts.distances, 1)
        label = tf.cast(known[:, LABEL], tf.int64)
        of_class = tf.one_hot(label, len(CLASSES), dtype=tf.float64)
        of_cluster = tf.one_hot(nearest, self.clusters, dtype=tf.float64)
        self.pairs.assign_add(tf.matmul(of_class, of_cluster, transpose_a=True))

    def reset_state(self) -> None:
        self.pairs.assign(tf.zeros_like(self.pairs))

    def result(self) -> Any:
        return tf.constant(match_clusters(self.pairs.numpy()).accuracy, tf.float64)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "clusters": self.clusters, "max_dim": self.max_dim}
