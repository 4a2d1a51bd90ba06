"""Writing into the run directory, where a full disk or a vanished directory must never pass unseen.

Metrics, events and checkpoints write through this. Every failure becomes one StorageError that
names the file and the cause; what was written before stays readable. It never retries and never
swallows an error.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rampup.errors import STORAGE_FAILED, RampupError


class StorageError(RampupError):
    """The run directory can't be written. Its exit code informs the launcher even when nothing else
    can be written."""

    exit_code = STORAGE_FAILED


def storage_error(path: str | Path, cause: str) -> StorageError:
    return StorageError(
        f"can't write {path}: {cause}",
        f"check free space and quota with: df -h {Path(path).parent}",
    )


@contextmanager
def guard_writes(path: str | Path) -> Iterator[None]:
    """Turn an error of the operating system about `path` into a StorageError."""
    try:
        yield
    except OSError as error:
        raise storage_error(path, error.strerror or str(error)) from error


class GrowingFile:
    """A file that only grows. Its writes go to the system at once, whole or with an error."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with guard_writes(path):
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)

    def append(self, data: bytes) -> None:
        rest = memoryview(data)
        with guard_writes(self.path):
            while rest:
                rest = rest[os.write(self._file, rest) :]
            gone = os.fstat(self._file).st_nlink == 0
        if gone:
            raise storage_error(self.path, "it was removed while the run was writing it")

    def close(self) -> None:
        with guard_writes(self.path):
            os.close(self._file)


def say(line: str) -> None:
    """Print a whole line into the log of this rank, at once; a log that can't grow ends the run like
    any other file."""
    with guard_writes("the log of this rank"):
        print(line, flush=True)
