"""Exact validation with Keras: every sample counts once, on any number of ranks and replicas.

Each rank counts on its own shard with its own metrics; what they have counted (sums, not means) is
added up once, and the result is computed from that. A metric whose state can't be added up would
not be exact; those of Keras all can. engine.py calls it after each epoch.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from rampup.core.settings import Settings
from rampup.engines.clusters import Clustering
from rampup.engines.keras import data as keras_data
from rampup.engines.keras.model import CompiledModel, check_prediction, match_labels
from rampup.engines.keras.setup import tf, tf_keras
from rampup.engines.keras.state import differs_between_replicas
from rampup.engines.keras.task import Data
from rampup.engines.keras.world import World

MOST_SHOWN = 256
"""Validation samples of rank 0 whose predictions are kept for the report."""
MOST_CLUSTERED = 1000
"""The same, where they are clustered."""
FindClusters = Callable[[Mapping[str, Any], Any, Any], Clustering]


class Evaluation:
    def __init__(
        self,
        compiled: CompiledModel,
        data: Data | None,
        settings: Settings,
        world: World,
        outputs: Sequence[str] = (),
        find_clusters: FindClusters | None = None,
    ) -> None:
        """`outputs` are the names of the numbers that the model predicts, to be shown.
        `find_clusters` returns the clusters that the model has found, where it finds some."""
        self._compiled, self._world = compiled, world
        self._outputs = list(outputs) if world.rank == 0 else []
        self._find_clusters = find_clusters if world.rank == 0 else None
        self._most = MOST_CLUSTERED if self._find_clusters else MOST_SHOWN * bool(self._outputs)
        self._shown: list[tuple[Any, Any]] = []
        self._metrics: list[Any] = []
        self._batches: Any = None
        self.samples = len(data) if data is not None else 0
        """The number of validation samples that there are."""
        if data is None or not len(data):
            return
        self._batches = keras_data.validation_batches(
            data, settings.eval_batch_size, settings.get("eval_batches"), world
        )
        x, y = data.batch(tf.range(1))
        predicted = self._zero_prediction(x)
        self._metrics = [tf_keras.metrics.Mean(name="loss"), *compiled.metrics(y, predicted)]
        for metric in self._metrics[1:]:
            metric.update_state(match_labels(y, predicted), predicted)  # some make their state now
        self._step = tf.function(
            self._count, input_signature=[self._batches.element_spec], reduce_retracing=True
        )
        several = world.replicas > 1
        self._averaged = [
            each for each in compiled.model.variables if several and differs_between_replicas(each)
        ]
        self._average = tf.function(lambda: world.strategy.run(self._average_in_replica))

    @property
    def metrics(self) -> list[str]:
        return [f"val_{metric.name}" for metric in self._metrics]

    def run(self) -> dict[str, float]:
        """Return the metrics of the current model, the same on every rank."""
        if self._batches is None:
            return {}
        if self._averaged:
            self._average()
        for metric in self._metrics:
            metric.reset_state()
        self._shown = []
        kept = 0
        for batch in self._batches:
            pairs = self._step(batch)
            if kept < self._most:
                self._shown += [(y.numpy(), predicted.numpy()) for y, predicted in pairs]
                kept = sum(len(y) for y, _ in self._shown)
        self._sum_metrics()
        return {f"val_{metric.name}": _number(metric.result()) for metric in self._metrics}

    def record(self) -> dict[str, Any]:
        """Return what is shown of the last validation: the first predictions and what is true, one
        column for each output; empty where none are to be shown."""
        if not self._shown or not self._outputs:
            return {}
        size = len(self._outputs)
        columns = []
        for part in zip(*self._shown, strict=True):
            rows = np.concatenate(part)[:MOST_SHOWN].reshape(-1, size).astype(np.float64)
            columns.append(np.nan_to_num(rows, posinf=0.0, neginf=0.0).round(6).T.tolist())
        return {"outputs": self._outputs, "truth": columns[0], "predicted": columns[1]}

    def clustering(self) -> Clustering | None:
        """Return the clusters of the last validation, on rank 0, where the task finds some."""
        if not self._shown or self._find_clusters is None:
            return None
        truth, predicted = (
            np.concatenate(part)[: self._most] for part in zip(*self._shown, strict=True)
        )
        metrics = {metric.name: metric for metric in self._metrics}
        return self._find_clusters(metrics, truth, predicted)

    def _predict(self, x: Any) -> Any:
        found = self._compiled.model(x, training=False)
        check_prediction(found)
        return found

    def _zero_prediction(self, x: Any) -> Any:
        """Return zeros in the shape of the model's output for one sample."""
        outputs = self._compiled.model.outputs
        if outputs and outputs[0].shape[1:].is_fully_defined():
            return tf.zeros([1, *outputs[0].shape[1:]])
        # A user's own class does not know its shape, and some shapes follow from the input.
        pieces = [(x,)] * self._world.local_replicas
        return tf.zeros_like(tf.function(lambda: self._world.run(self._predict, *pieces)[0])())

    def _count(self, batch: Any) -> list[tuple[Any, Any]]:
        outputs = self._world.run(self._predict, *((x,) for x, _ in batch))
        fixed = tf.add_n(
            [0.0, *[tf.cast(each, tf.float32) for each in self._compiled.model.losses]]
        )
        for (_, y), predicted in zip(batch, outputs, strict=True):
            loss, *others = self._metrics
            loss.update_state(self._compiled.per_sample(y, predicted) + fixed)
            for metric in others:
                metric.update_state(match_labels(y, predicted), predicted)
        if not self._most:
            return []
        return [(y, predicted) for (_, y), predicted in zip(batch, outputs, strict=True)]

    def _sum_metrics(self) -> None:
        variables = [variable for metric in self._metrics for variable in metric.variables]
        own = [variable.numpy().astype(np.float64) for variable in variables]
        total = self._world.sum(np.concatenate([each.reshape(-1) for each in own]))
        begin = 0
        for variable, mine in zip(variables, own, strict=True):
            found = total[begin : begin + mine.size].reshape(mine.shape)
            variable.assign(tf.cast(found, variable.dtype))
            begin += mine.size

    def _average_in_replica(self) -> None:
        """Average the statistics of batch normalisation: each replica has seen other samples."""
        flat = tf.concat(
            [tf.reshape(tf.cast(each, tf.float32), [-1]) for each in self._averaged], axis=0
        )
        found = self._world.all_reduce(flat) / self._world.replicas
        begin = 0
        for variable in self._averaged:
            size = variable.shape.num_elements()
            part = tf.reshape(found[begin : begin + size], variable.shape)
            variable.assign(tf.cast(part, variable.dtype))
            begin += size


def _number(result: Any) -> float:
    """Return one number: the mean where a metric, such as F1, has a value for each class."""
    return float(np.mean(np.asarray(result)))
