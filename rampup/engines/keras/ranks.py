"""What a task can ask of all ranks between two steps: sums, rows, and what the model returns.

engine.py hands a Ranks to the hooks of a Task. Every method is collective: all ranks must call it,
in the same order. What it returns is the same on every rank. It never writes a file.
"""

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rampup.data.order import shard
from rampup.engines.keras.setup import tf
from rampup.engines.keras.task import Data
from rampup.engines.keras.world import World

Array = NDArray[Any]


class Ranks:
    """The ranks of a run, as a task sees them."""

    def __init__(self, world: World, model: Any, data: Data, batch_size: int) -> None:
        self._world, self._model, self._batch_size = world, model, batch_size
        self.rank, self.size = world.rank, world.size
        self.data = data
        """The training data."""
        self._predict: Any = None

    def sum(self, numbers: Array) -> NDArray[np.float64]:
        """Return the sum over all ranks."""
        given = np.asarray(numbers, np.float64)
        return self._world.sum(given.reshape(-1)).reshape(given.shape)

    def gather(self, rows: Array) -> Array:
        """Return the rows of all ranks, in the order of the ranks; each may have another number."""
        given = np.ascontiguousarray(rows)
        counts = [int(each[0]) for each in self._world.gather(np.array([len(given)], np.int32))]
        row_bytes = given.dtype.itemsize * int(np.prod(given.shape[1:]))
        words = np.zeros(-(-max(counts) * row_bytes // 4), np.int32)
        words.view(np.uint8)[: given.nbytes] = given.reshape(-1).view(np.uint8)
        found = []
        for count, each in zip(counts, self._world.gather(words), strict=True):
            mine = np.ascontiguousarray(each).view(np.uint8)[: count * row_bytes]
            found.append(mine.view(given.dtype).reshape(count, *given.shape[1:]))
        return np.concatenate(found)

    def broadcast(self, array: Array) -> Array:
        """Return the array of rank 0; on the others only its shape and type count."""
        given = np.asarray(array)
        rows = given.reshape(1, *given.shape)
        found: Array = self.gather(rows if self.rank == 0 else rows[:0])[0]
        return found

    def predict(self, data: Data | None = None) -> Array:
        """Return what the model returns for each sample, in evaluation mode and in their order.

        Each rank computes its own part. Without `data`, the training data is meant.
        """
        source = self.data if data is None else data
        if self._predict is None:
            self._predict = tf.function(self._take, reduce_retracing=True)
        low, high = shard(len(source), self.rank, self.size)
        found = []
        for begin in range(low, high, self._batch_size):
            end = min(begin + self._batch_size, high)
            replicas = self._world.local_replicas
            cuts = [begin + (end - begin) * index // replicas for index in range(replicas + 1)]
            pieces = [source.batch(tf.range(*pair, dtype=tf.int64))[0] for pair in pairwise(cuts)]
            found += [each.numpy() for each in self._predict(pieces)]
        width = self._model.outputs[0].shape[1:]
        return self.gather(np.concatenate([np.empty((0, *width), np.float32), *found]))

    def _take(self, pieces: list[Any]) -> list[Any]:
        return self._world.run(
            lambda x: self._model(x, training=False), *((each,) for each in pieces)
        )
