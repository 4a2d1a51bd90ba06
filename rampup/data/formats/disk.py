"""Files as readers use them: opened late, few at a time, read at a place, and errors that help.

Several threads share an open file: every read names its place. A file that a thread still reads
stays open until that thread has finished, even when it has left the list of open files.
"""

import os
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from pathlib import Path

from rampup.errors import RampupError

MOST_OPEN = 64
"""Files that a reader keeps open: far below the 1024 that a process may have."""

STEP_BYTES = 1 << 16
"""What is handed to a decompressor at once: it copies what it does not use."""

Stamp = tuple[int, int, int]

_kept = threading.local()


def kept_buffer(size: int) -> memoryview:
    """Return memory of this thread that the next call hands out again."""
    memory: bytearray | None = getattr(_kept, "memory", None)
    if memory is None or len(memory) < size:
        memory = _kept.memory = bytearray(size)
    return memoryview(memory)[:size]


def unreadable(path: str, error: OSError) -> RampupError:
    """Return the error for a file that can't be opened or read."""
    if isinstance(error, FileNotFoundError):
        return RampupError(
            f"{path}: the file is not there",
            "put it back, or leave it out of the list of files; then continue: rampup resume",
        )
    reason = error.strerror or str(error)
    return RampupError(
        f"{path}: can't be read: {reason}", f"look at the file and its disk: ls -l {path}"
    )


def truncated(path: str, detail: str) -> RampupError:
    """Return the error for a file that is shorter than it says."""
    return RampupError(
        f"{path}: the file is cut off: {detail}",
        "copy or download it again, or leave it out of the list of files",
    )


def changed(path: str) -> RampupError:
    """Return the error for a file that is not what it was."""
    return RampupError(
        f"{path}: the file changed while a run reads it",
        "let nothing write into the data during a run; then continue: rampup resume",
    )


def listed(paths: Iterable[str | Path], what: str) -> list[str]:
    """Return the paths as text, in the order given; none at all is a mistake."""
    if isinstance(paths, (str, Path)):
        paths = [paths]
    found = [str(path) for path in paths]
    if not found:
        raise RampupError(
            f"{what} got no files",
            "check the folder and the pattern that you list them with",
        )
    return found


def stamp_of(about: os.stat_result) -> Stamp:
    return about.st_ino, about.st_size, about.st_mtime_ns


class OpenFile:
    """A file that is closed when nobody uses it any more."""

    def __init__(self, path: str) -> None:
        self.fd = -1
        try:
            self.fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise unreadable(path, error) from error
        self.path = path

    def __del__(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)

    def read(self, memory: memoryview, offset: int) -> None:
        """Fill `memory` with the bytes from `offset` on."""
        done = 0
        while done < len(memory):
            try:
                count = os.preadv(self.fd, [memory[done:]], offset + done)
            except OSError as error:
                raise unreadable(self.path, error) from error
            if count == 0:
                missing = len(memory) - done
                raise truncated(self.path, f"it ends at byte {offset + done}, {missing} too early")
            done += count

    def steps(self) -> Iterator[bytes]:
        """Yield the bytes of the whole file, a few at a time."""
        offset = 0
        while True:
            try:
                step = os.pread(self.fd, STEP_BYTES, offset)
            except OSError as error:
                raise unreadable(self.path, error) from error
            if not step:
                return
            yield step
            offset += len(step)

    def stamp(self) -> Stamp:
        """Return what changes when the file does: its number, size and time of the last change."""
        return stamp_of(os.fstat(self.fd))


class OpenFiles:
    """The files used last, open."""

    def __init__(self, most: int = MOST_OPEN) -> None:
        self._most = most
        self._files: OrderedDict[str, OpenFile] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, path: str) -> OpenFile:
        """Return the open file; opening happens outside the lock, as it may take long."""
        with self._lock:
            if path in self._files:
                self._files.move_to_end(path)
                return self._files[path]
        opened = OpenFile(path)
        with self._lock:
            self._files[path] = opened
            self._files.move_to_end(path)
            while len(self._files) > self._most:
                self._files.popitem(last=False)
        return opened

    def drop(self, path: str) -> None:
        with self._lock:
            self._files.pop(path, None)
