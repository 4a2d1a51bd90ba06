"""The next batches of a SampleReader, read by threads while the model computes.

An engine says once which samples its batches will have, because the order of an epoch follows from
(seed, epoch) alone, and then takes one batch after the other. What is read and not yet taken stays
below a number of bytes. A reader that fails is reported where its batch would have been taken, and
a reader that never returns can't keep a run from stopping. Nothing here opens a file, and no
process is started.
"""

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from rampup.data.buffers import Arrays, Pool
from rampup.data.failure import describe_failure
from rampup.data.reader import Blocks, SampleReader
from rampup.errors import RampupError

Indices = NDArray[np.int64]
PART_BYTES = 4 * 2**20
"""A batch is read by several threads where each gets at least this much of it."""
MOST_BATCHES = 64
"""Batches that are read ahead at most, however small they are."""
LOOK_EVERY_S = 0.5
STOP_PATIENCE_S = 30.0
"""How long a run that is asked to stop waits for a batch. A save must still fit before the time
limit."""


class _Batch:
    """A batch that is being read, or is ready."""

    def __init__(self, indices: Indices, arrays: Arrays, size: int) -> None:
        self.indices, self.arrays, self.size = indices, arrays, size
        self.missing = 0
        """The number of parts that are not read."""
        self.error: BaseException | None = None


_Part = tuple[_Batch, int, int]


class ReadAhead:
    """One set of samples, as an engine reads it: the next batches in order, or any batch at once."""

    def __init__(self, reader: SampleReader, readers: int, most_bytes: int) -> None:
        self._reader, self.readers, self._most_bytes = reader, readers, most_bytes
        self._pool = Pool(reader.fields, most_bytes)
        self._change = threading.Condition()
        self._plan: Iterator[Indices] = iter(())
        self._next: Indices | None = None
        """The batch of the plan that there was no room for."""
        self._batches: deque[_Batch] = deque()
        self._parts: deque[_Part] = deque()
        self._size = 0
        """The bytes of all batches that are not taken."""
        self._threads: list[threading.Thread] = []
        self._closed = False
        self._is_stopping: Callable[[], bool] = lambda: False
        self.error: BaseException | None = None
        """What a taken batch failed with."""
        self.bytes_read = self.largest_batch = 0
        self.waited_s = 0.0

    def __len__(self) -> int:
        return len(self._reader)

    def blocks(self) -> Blocks | None:
        """Return which samples are cheap to read together."""
        return self._reader.blocks()

    @property
    def samples_at_once(self) -> int:
        """Return how many samples fit into half of the memory, at least one."""
        return max(1, self._most_bytes // (2 * self._pool.size(1)))

    def read(self, indices: Indices) -> Arrays:
        """Read these samples now, in this thread."""
        batch = _Batch(indices, self._pool.take(len(indices)), 0)
        self._read_part((batch, 0, len(indices)))
        if batch.error is not None:
            self.error = batch.error
            raise batch.error
        return batch.arrays

    def plan(
        self, batches: Iterable[Indices], is_stopping: Callable[[], bool] = lambda: False
    ) -> None:
        """Begin to read these batches, which will be taken in this order.

        What was planned before is dropped. `batches` may be computed as it is needed, in any of
        the threads. `is_stopping` says whether the run is asked to stop.
        """
        with self._change:
            self._is_stopping = is_stopping
            self._plan, self._next = iter(batches), None
            self._batches.clear()
            self._parts.clear()
            self._size = 0
            self._change.notify_all()
        while len(self._threads) < self.readers:
            name = f"rampup-reader-{len(self._threads)}"
            thread = threading.Thread(target=self._work, name=name, daemon=True)
            self._threads.append(thread)
            thread.start()

    def take(self, indices: Indices) -> Arrays:
        """Return these samples: the next batch of the plan, or any other, which is read now."""
        with self._change:
            self._extend()
            is_next = self._batches and np.array_equal(self._batches[0].indices, indices)
            if is_next:
                return self._take_first()
        return self.read(indices)

    def take_next(self) -> Arrays | None:
        """Return the next batch of the plan, or None after the last one."""
        with self._change:
            self._extend()
            return self._take_first() if self._batches else None

    def close(self) -> None:
        """End the threads, without waiting for one that is reading: it may never return."""
        with self._change:
            self._closed = True
            self._plan, self._next = iter(()), None
            self._batches.clear()
            self._parts.clear()
            self._change.notify_all()

    # with the lock held ---------------------------------------------------------------------------

    def _take_first(self) -> Arrays:
        batch = self._batches[0]
        self._wait_for(batch)
        self._batches.popleft()
        self._size -= batch.size
        self._change.notify_all()
        if batch.error is not None:
            self.error = batch.error
            raise batch.error
        return batch.arrays

    def _wait_for(self, batch: _Batch) -> None:
        began = time.monotonic()
        asked_at: float | None = None
        while batch.missing and batch.error is None:
            self._change.wait(LOOK_EVERY_S)
            if not self._is_stopping():
                continue
            now = time.monotonic()
            asked_at = asked_at or now
            if now - asked_at > STOP_PATIENCE_S:
                self.error = _too_slow(batch, now - began)
                raise self.error
        self.waited_s += time.monotonic() - began

    def _extend(self) -> None:
        """Take up the next batches of the plan, as far as there is room; one in any case."""
        while len(self._batches) < MOST_BATCHES:
            if self._next is None:
                self._next = next(self._plan, None)
            if self._next is None:
                return
            size = self._pool.size(len(self._next))
            if self._batches and self._size + size > self._most_bytes:
                return
            batch = _Batch(self._next, self._pool.take(len(self._next)), size)
            self._batches.append(batch)
            self._size += size
            self.largest_batch = max(self.largest_batch, size)
            self._next = None
            self._split(batch)

    def _split(self, batch: _Batch) -> None:
        count = len(batch.indices)
        parts = max(1, min(self.readers, count, batch.size // PART_BYTES))
        batch.missing = parts
        for number in range(parts):
            part = (batch, count * number // parts, count * (number + 1) // parts)
            self._parts.append(part)

    def _next_part(self) -> _Part | None:
        """Return what to read next; None when there is no room, or nothing left."""
        if not self._parts:
            # what can't be planned, for want of memory, fails where the batch is taken
            with contextlib.suppress(Exception):
                self._extend()
        return self._parts.popleft() if self._parts else None

    # in the threads -------------------------------------------------------------------------------

    def _work(self) -> None:
        while True:
            with self._change:
                part = self._next_part()
                while part is None:
                    if self._closed:
                        return
                    self._change.wait()
                    part = self._next_part()
            self._read_part(part)
            with self._change:
                part[0].missing -= 1
                self.bytes_read += self._pool.size(part[2] - part[1])
                self._change.notify_all()
            del part  # its memory is the engine's now

    def _read_part(self, part: _Part) -> None:
        batch, begin, end = part
        if begin == end:
            return
        indices, arrays = batch.indices[begin:end], tuple(a[begin:end] for a in batch.arrays)
        try:
            self._reader.read(indices, arrays)
        except BaseException as error:
            found = error
            with contextlib.suppress(BaseException):  # somebody waits for this batch
                found = describe_failure(error, self._reader, indices, arrays)
            batch.error = found


def default_readers(cpus: int) -> int:
    """Return how many threads read for a rank that has so many CPUs."""
    return max(1, min(8, cpus // 2))


def _too_slow(batch: _Batch, seconds: float) -> RampupError:
    samples = ", ".join(str(index) for index in batch.indices[:3].tolist())
    return RampupError(
        f"asked to stop, but the samples {samples}, ... have not been read for {seconds:.0f} s",
        "check the file system of the data; the run can be resumed from its last checkpoint",
    )
