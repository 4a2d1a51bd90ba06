"""A SampleReader as the data of a torch task: batches of tensors, read ahead while the model
computes.

`parts.build_data` opens one where `Task.data()` returns a SampleReader, and imports this only then.
The engines of torch and Lightning say with `plan` which batches come, and ask for each of them as
they ask data in memory. No batch is copied: a tensor is the memory that a thread has filled.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from rampup.data.order import EpochOrder
from rampup.data.read_ahead import Indices, ReadAhead
from rampup.data.reader import Field
from rampup.engines.streams import limit_batch, open_readers
from rampup.runtime.job import Job


class StreamedData:
    """Data that is read sample by sample; it has the methods of every `Data`."""

    def __init__(self, ahead: ReadAhead, fields: Sequence[Field]) -> None:
        self.ahead = ahead
        self._channels_last = [field.channels_last for field in fields]

    def __len__(self) -> int:
        return len(self.ahead)

    def batch(self, indices: Tensor) -> tuple[Tensor, ...]:
        """Return the samples at these positions: those that are planned next were read ahead."""
        found = self.ahead.take(indices.numpy())
        tensors = [torch.from_numpy(array) for array in found]
        return tuple(
            tensor.movedim(-1, 1) if last else tensor
            for tensor, last in zip(tensors, self._channels_last, strict=True)
        )

    def plan(
        self, batches: Iterable[Indices], is_stopping: Callable[[], bool] = lambda: False
    ) -> None:
        """Begin to read these batches, which `batch` will be asked for in this order."""
        self.ahead.plan(batches, is_stopping)

    def order(self, seed: int, batch_size: int) -> EpochOrder:
        """Return the order of each epoch, in blocks where samples are cheap to read together."""
        return EpochOrder(seed, len(self), batch_size, self.ahead.blocks())

    def limit(self, batch_size: int) -> int:
        """Return the size of validation batches: no larger than the memory for reading ahead."""
        return limit_batch(self.ahead, batch_size)


def open_streams(train: Any, validation: Any, job: Job) -> tuple[Any, Any]:
    """Return training and validation data with each SampleReader replaced by its StreamedData."""
    found = (train, validation)
    opened = open_readers(found, job, torch.get_num_threads())
    train, validation = (
        StreamedData(ahead, reader.fields) if ahead is not None else reader
        for reader, ahead in zip(found, opened, strict=True)
    )
    return train, validation
