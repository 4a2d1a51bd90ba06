"""A SampleReader as the data of a torch task: batches of tensors, read ahead while the model
computes.

`parts.build_data` opens one where `Task.data()` returns a SampleReader, and imports this only then.
The engines of torch and Lightning say with `plan` which batches come, and ask for each of them as
they ask data in memory. No batch is copied: a tensor is the memory that a thread has filled.
"""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from rampup.core.settings import Settings
from rampup.data.read_ahead import Indices, ReadAhead, default_readers
from rampup.data.reader import SampleReader
from rampup.runtime.storage import say

MB = 1_000_000
READ_AHEAD_MB = 256
"""For a run of an older version, which does not have the setting."""


class StreamedData:
    """Data that is read sample by sample; it has the methods of every `Data`."""

    def __init__(self, reader: SampleReader, readers: int, most_bytes: int) -> None:
        self.ahead = ReadAhead(reader, readers, most_bytes)
        self._channels_last = [field.channels_last for field in reader.fields]

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

    def limit(self, batch_size: int) -> int:
        """Return the size of validation batches: no larger than the memory for reading ahead."""
        fits = self.ahead.samples_at_once
        if batch_size > fits:
            say(f"note: validation takes {fits} samples at a time, which is what read_ahead allows")
        return min(batch_size, fits)


def open_streams(
    found: tuple[object, object], settings: Settings, cpus: int
) -> tuple[object, object]:
    """Return training and validation data with each SampleReader replaced by its StreamedData.

    They share the memory that `read_ahead` gives, and the threads are the same number for each:
    only one of them is read at a time.
    """
    streamed = [each for each in found if isinstance(each, SampleReader)]
    most_bytes = settings.get("read_ahead", READ_AHEAD_MB) * MB // len(streamed)
    readers = settings.get("readers") or default_readers(cpus)
    train, validation = (
        StreamedData(each, readers, most_bytes) if isinstance(each, SampleReader) else each
        for each in found
    )
    return train, validation
