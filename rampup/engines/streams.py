"""Data that is read sample by sample, as every engine opens it: memory, threads, and what is refused.

The rooms of torch and Keras import this only where `Task.data()` returns a SampleReader, and make
tensors of what it reads. It imports no framework.
"""

from collections.abc import Sequence
from typing import Any

from rampup.core.settings import Settings
from rampup.data.read_ahead import ReadAhead, default_readers
from rampup.data.reader import SampleReader
from rampup.runtime.storage import say

MB = 1_000_000
READ_AHEAD_MB = 256
"""For a run of an older version, which does not have the setting."""


def open_readers(found: Sequence[Any], settings: Settings, cpus: int) -> list[ReadAhead | None]:
    """Return how each SampleReader of (training, validation) is read; None for all other data.

    They share the memory that `read_ahead` gives. Each has all threads, because only one of them is
    waited for at a time.
    """
    streamed = [isinstance(each, SampleReader) for each in found]
    most_bytes = settings.get("read_ahead", READ_AHEAD_MB) * MB // sum(streamed)
    readers = settings.get("readers") or default_readers(cpus)
    return [
        ReadAhead(reader, readers, most_bytes) if is_streamed else None
        for reader, is_streamed in zip(found, streamed, strict=True)
    ]


def limit_batch(ahead: ReadAhead, batch_size: int) -> int:
    """Return the size of validation batches: no larger than the memory for reading ahead.

    The default is meant for small samples, and the result does not depend on it.
    """
    fits = ahead.samples_at_once
    if batch_size > fits and len(ahead) > fits:
        say(f"note: validation reads {fits} samples at a time, as many as read_ahead has room for")
    return min(batch_size, fits)
