"""The statistics of batch normalisation, computed anew with frozen weights.

Moving statistics lag behind the weights, and a model that is judged by them may look far worse than
it is. engine.py calls `refresh` at the end of an epoch, before the task's own work and before the
validation: some training batches go through the model as in a step, and the layers take the mean of
their statistics. Nothing else of the model changes.
"""

from itertools import pairwise
from typing import Any

from rampup.core.settings import Settings
from rampup.data.order import permutation
from rampup.engines.keras.batch_statistics import BatchNormalization, Pass, in_pass
from rampup.engines.keras.data import BatchCut
from rampup.engines.keras.model import CompiledModel
from rampup.engines.keras.setup import tf
from rampup.engines.keras.task import Data
from rampup.engines.keras.world import World
from rampup.engines.pieces import Cut
from rampup.errors import RampupError

BEFORE_THE_FIRST = 0
"""Epochs count from 1: the batches are those of an epoch that no run trains on."""


class Recomputation:
    """The passes that compute the statistics; none where `statistics_samples=0`."""

    def __init__(
        self, compiled: CompiledModel, data: Data, settings: Settings, world: World
    ) -> None:
        self._model, self._data, self._world = compiled.model, data, world
        self._step = -1
        wanted = min(settings.statistics_samples, len(data))
        self._batches: list[Any] = []
        if not wanted:
            return
        if not any(isinstance(each, BatchNormalization) for each in self._model.submodules):
            raise RampupError(
                f"statistics_samples={settings.statistics_samples}: the model has no layer whose "
                "statistics can be recomputed",
                "use rampup.keras.BatchNormalization, or statistics_samples=0",
            )
        size = min(settings.batch_size, wanted)
        order = permutation(settings.seed, BEFORE_THE_FIRST, len(data))
        cut = BatchCut(size, world, Cut(world.replicas))
        self._weights = [weight for _, _, weight in cut.parts]
        # all of one size, because all count the same
        bounds = pairwise(range(0, wanted - wanted % size + 1, size))
        self._batches = [cut.pieces_of(order[None, low:high]) for low, high in bounds]
        self._function = tf.function(self._take, reduce_retracing=True)

    def refresh(self, step: int) -> None:
        """Recompute the statistics, unless they are those of this step already."""
        if step == self._step:
            return
        self._step = step
        for before, pieces in enumerate(self._batches):
            inputs = [self._data.batch(tf.constant(piece[0]))[0] for piece in pieces]
            self._function(inputs, tf.constant(before, tf.float32))

    def _take(self, inputs: list[Any], before: Any) -> None:
        pieces = [
            (x, tf.constant(weight, tf.float32), before)
            for x, weight in zip(inputs, self._weights, strict=True)
        ]
        self._world.run(self._in_replica, *pieces)

    def _in_replica(self, x: Any, weight: Any, before: Any) -> Any:
        several = self._world.replicas > 1
        all_reduce = self._world.all_reduce if several else None
        with in_pass(Pass(all_reduce, weight, before)):
            self._model(x, training=True)
        return before
