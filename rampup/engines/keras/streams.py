"""A SampleReader as the data of a Keras task: batches of tensors, read ahead while the model
computes.

engine.py opens one where `Task.data()` returns a SampleReader, and imports this only then. The last
field of a sample is what the model is to predict; those before it are its inputs. The steps are the
same as for data in memory, cut in the same way, but Python waits for them and not a tf.data
pipeline: so a signal is noticed while a reader is slow, and an error keeps its type.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from rampup.data.buffers import Arrays
from rampup.data.order import EpochOrder, shard
from rampup.data.read_ahead import Indices, ReadAhead
from rampup.data.reader import Field
from rampup.engines.keras.data import BatchCut
from rampup.engines.keras.setup import tf
from rampup.engines.keras.world import World
from rampup.engines.pieces import Cut
from rampup.engines.streams import limit_batch, open_readers
from rampup.errors import RampupError
from rampup.runtime.job import Job


class StreamedData:
    """Data that is read sample by sample; it has the methods of every `Data`."""

    def __init__(
        self, ahead: ReadAhead, fields: Sequence[Field], is_stopping: Callable[[], bool]
    ) -> None:
        if len(fields) < 2:
            raise RampupError(
                f"a sample has {len(fields)} field, and Keras needs inputs and expected outputs",
                "give the SampleReader two fields or more; the last one is the expected output",
            )
        self.ahead, self._fields, self.is_stopping = ahead, fields, is_stopping

    def __len__(self) -> int:
        return len(self.ahead)

    def batch(self, indices: Any) -> tuple[Any, Any]:
        """Return the samples at these positions, read now."""
        return self.as_tensors(self.ahead.read(np.asarray(indices, np.int64)))

    def as_tensors(self, arrays: Arrays) -> tuple[Any, Any]:
        """Return the inputs and the expected outputs."""
        *inputs, outputs = [tf.convert_to_tensor(array) for array in arrays]
        return inputs[0] if len(inputs) == 1 else tuple(inputs), outputs

    def spec(self, samples: int | None) -> tuple[Any, Any]:
        """Return the shapes and types of a batch; its size is None where batches differ."""
        *inputs, outputs = [
            tf.TensorSpec((samples, *field.shape), np.dtype(field.dtype)) for field in self._fields
        ]
        return inputs[0] if len(inputs) == 1 else tuple(inputs), outputs

    def training_batches(
        self, batch_size: int, seed: int, first: int, last: int, world: World, cut: Cut
    ) -> "TrainingStream":
        return TrainingStream(self, batch_size, seed, first, last, world, cut)

    def validation_batches(
        self, batch_size: int, batches: int | None, world: World
    ) -> "ValidationStream":
        return ValidationStream(self, limit_batch(self.ahead, batch_size), batches, world)


def open_streams(
    train: Any, validation: Any, job: Job, is_stopping: Callable[[], bool]
) -> tuple[Any, Any]:
    """Return training and validation data with each SampleReader replaced by its StreamedData."""
    found = (train, validation)
    opened = open_readers(found, job, job.context.threads or 1)
    train, validation = (
        StreamedData(ahead, reader.fields, is_stopping) if ahead is not None else reader
        for reader, ahead in zip(found, opened, strict=True)
    )
    return train, validation


class TrainingStream:
    """The steps of a training as this rank sees them, as `data.training_batches` returns them."""

    def __init__(
        self,
        data: StreamedData,
        batch_size: int,
        seed: int,
        first: int,
        last: int,
        world: World,
        cut: Cut,
    ) -> None:
        self._data, self._batch_size, self._seed = data, batch_size, seed
        self._first, self._last = first, last
        whole, rest = divmod(len(data), batch_size)
        self._steps = whole + bool(rest)
        self._whole = whole
        self._cuts = {size: BatchCut(size, world, cut) for size in (batch_size, rest) if size}
        self._sizes = [batch_size] * bool(whole) + [rest] * bool(rest)

    @property
    def element_spec(self) -> Any:
        """Return the shapes and types of a step."""
        parts = [self._cuts[size].parts for size in self._sizes]
        found = []
        for replicas in zip(*parts, strict=True):
            lengths = {end - begin for begin, end, _ in replicas}
            length = lengths.pop() if len(lengths) == 1 else None
            found.append((*self._data.spec(length), tf.TensorSpec((), tf.float32)))
        return tuple(found)

    def __iter__(self) -> Iterator[Any]:
        self._data.ahead.plan(self._indices(), self._data.is_stopping)
        for step in range(self._first, self._last):
            yield tuple(self._pieces(step))

    def _size_of(self, step: int) -> int:
        return self._sizes[0] if step % self._steps < self._whole else self._sizes[-1]

    def _indices(self) -> Iterator[Indices]:
        order_of = EpochOrder(
            self._seed, len(self._data), self._batch_size, self._data.ahead.blocks()
        )
        for step in range(self._first, self._last):
            order, low = order_of(step // self._steps + 1), step % self._steps * self._batch_size
            for begin, end, _ in self._cuts[self._size_of(step)].parts:
                yield order[low + begin : low + end]

    def _pieces(self, step: int) -> Iterator[Any]:
        for _, _, weight in self._cuts[self._size_of(step)].parts:
            arrays = self._data.ahead.take_next()
            assert arrays is not None, "the plan has a piece for each replica of each step"
            yield (*self._data.as_tensors(arrays), tf.constant(weight, tf.float32))


class ValidationStream:
    """This rank's shard, as `data.validation_batches` returns it."""

    def __init__(
        self, data: StreamedData, batch_size: int, batches: int | None, world: World
    ) -> None:
        self._data, self._replicas = data, world.local_replicas
        low, high = shard(len(data), world.rank, world.size)
        if batches is not None:
            high = min(high, low + batches * batch_size)
        begins = range(low, high, batch_size)
        self._batches = [(begin, min(begin + batch_size, high)) for begin in begins]
        self.element_spec = (data.spec(None),) * self._replicas

    def __iter__(self) -> Iterator[Any]:
        plan: Iterable[Indices] = (np.arange(*batch) for batch in self._batches)
        self._data.ahead.plan(plan, self._data.is_stopping)
        for begin, end in self._batches:
            arrays = self._data.ahead.take_next()
            assert arrays is not None, "the plan has as many batches"
            count = end - begin
            cuts = [count * index // self._replicas for index in range(self._replicas + 1)]
            yield tuple(
                self._data.as_tensors(tuple(array[low:high] for array in arrays))
                for low, high in pairwise(cuts)
            )
