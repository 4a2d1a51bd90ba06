"""Data that is read sample by sample, as every engine opens it: memory, threads, and what is refused.

The rooms of torch and Keras import this only where `Task.data()` returns a SampleReader, and make
tensors of what it reads. It imports no framework.
"""

import contextlib
import threading
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

from rampup.data.read_ahead import ReadAhead, default_readers
from rampup.data.reader import Field, SampleReader
from rampup.data.staging.copies import Copies
from rampup.data.staging.decoded import DecodedReader
from rampup.data.staging.place import NotStaged, Place, find_disk
from rampup.data.staging.stage import Stage
from rampup.errors import RampupError
from rampup.runtime.job import Job
from rampup.runtime.storage import StorageError, say

MB = 1_000_000
SETS = ("training", "validation")
READ_AHEAD_MB = 256
"""For a run of an older version, which does not have the setting."""


def open_readers(found: Sequence[Any], job: Job, cpus: int) -> list[ReadAhead | None]:
    """Return how each SampleReader of (training, validation) is read; None for all other data.

    They share the memory that `read_ahead` gives. Each has all threads, because only one of them is
    waited for at a time.
    """
    settings = job.settings
    streamed = [isinstance(each, SampleReader) for each in found]
    for each, is_streamed in zip(found, streamed, strict=True):
        if is_streamed:
            check_fields(each)
    most_bytes = settings.get("read_ahead", READ_AHEAD_MB) * MB // sum(streamed)
    readers = settings.get("readers") or default_readers(cpus)
    staging = open_staging(job)
    opened: list[ReadAhead | None] = [None, None]
    for place, name in enumerate(SETS):
        if streamed[place]:
            reader = staging.stage(found[place], name) if staging else found[place]
            opened[place] = ReadAhead(reader, readers, most_bytes)
    ahead = [each for each in opened if each is not None]
    job.leaving.append(partial(leave, job, ahead, staging, time.monotonic()))
    for each, reader, name in zip(opened, found, SETS, strict=True):
        if each is not None and len(each) == 0:
            raise RampupError(
                f"{type(reader).__name__} has no {name} samples",
                "check the folder and the pattern that its files are listed with",
            )
    return opened


def check_fields(reader: SampleReader) -> None:
    """Refuse a reader that does not say what it reads."""
    fields = getattr(reader, "fields", ())
    if not fields or not all(isinstance(field, Field) for field in fields):
        raise RampupError(
            f"{type(reader).__name__} does not say what a sample consists of",
            "give the class fields = (Field(shape, dtype), ...)",
        )


def leave(
    job: Job, opened: list[ReadAhead], staging: "Staging | None", began: float, is_over: bool
) -> None:
    """End all threads and record what they did; `is_over` means that the run will not continue."""
    for each in opened:
        each.close()
    facts: dict[str, float] = {
        "bytes": sum(each.bytes_read for each in opened),
        "seconds": round(time.monotonic() - began, 3),
        "waited_s": round(sum(each.waited_s for each in opened), 3),
        "readers": opened[0].readers,
        "batch_bytes": max(each.largest_batch for each in opened),
    }
    if staging:
        facts |= staging.facts()
        with contextlib.suppress(OSError):
            staging.leave(is_over)
    with contextlib.suppress(StorageError):  # the failure that brought us here is the one to report
        job.events.write("data", **facts)


def limit_batch(ahead: ReadAhead, batch_size: int) -> int:
    """Return the size of validation batches: no larger than the memory for reading ahead.

    The default is meant for small samples, and the result does not depend on it.
    """
    fits = ahead.samples_at_once
    if batch_size > fits and len(ahead) > fits:
        say(f"note: validation reads {fits} samples at a time, as many as read_ahead has room for")
    return min(batch_size, fits)


# on the node's own disk ---------------------------------------------------------------------------


class Staging:
    """What a run keeps on the node's own disk, as one rank uses it."""

    def __init__(self, job: Job) -> None:
        self._job, self._attempt = job, job.context.attempt
        self._place = Place(find_disk(job.local_disk), job.checkpoints.run.path.name)
        self._stages: list[Stage] = []
        if job.context.local_rank == 0:
            remove = self._place.remove_leftovers
            threading.Thread(target=remove, name="rampup-leftovers", daemon=True).start()
        if job.context.rank == 0:
            say(f"staging: what is read goes to {self._place.path}")

    def stage(self, reader: SampleReader, name: str) -> SampleReader:
        """Return the reader, or one in front of it, that keeps what it reads on the node's disk."""
        try:
            folder = self._place.folder(name)
            if self._job.settings.decode:
                decoded = DecodedReader(reader, folder, self._attempt, say)
                self._stages.append(decoded)
                return decoded
            copies = Copies(folder, self._attempt, say, lambda: bool(self._job.stop.reason))
        except (NotStaged, OSError) as reason:
            say(f"note: the {name} data is not staged: {reason}")
            return reader
        reader.copy_of = copies.path_of
        self._stages.append(copies)
        if not list(reader.files()) and self._job.context.rank == 0:
            say(f"note: {type(reader).__name__} names no files to stage: decode=true needs none")
        return reader

    def facts(self) -> dict[str, float]:
        """Return what this rank has staged."""
        found = {"staged_bytes": 0.0, "staged_s": 0.0, "reads": 0.0, "hits": 0.0}
        for stage in self._stages:
            for key, value in stage.facts().items():
                found[key] += value
        return found

    def leave(self, is_over: bool) -> None:
        for stage in self._stages:
            stage.is_off = True
        if is_over:
            self._place.mark_ended()
        self._place.leave()


def open_staging(job: Job) -> Staging | None:
    """Open the node's own disk where `stage=node` asks for it; say why, where that can't be done."""
    if job.settings.get("stage", "none") == "none":
        if job.settings.get("decode"):
            raise RampupError("decode=true keeps decoded samples nowhere", "add stage=node")
        return None
    try:
        return Staging(job)
    except NotStaged as reason:
        say(f"note: nothing is staged, the files themselves are read: {reason}")
        return None
