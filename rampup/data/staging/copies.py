"""Copies of whole files on the node's own disk, made when a file is first read: `stage=node`.

A reader asks `path_of` before it opens a file. Who asks first copies the file, and so it is read
once for all ranks of the node; a rank that finds another one at it reads the file itself, and never
waits. A large file is copied by a thread of its own while training continues. A copy is used when
its size and its checksum are right and the file has not changed since; one that an earlier attempt
has made or begun is checked and taken over. What goes wrong costs the copy and never the run.
"""

import hashlib
import json
import os
import queue
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rampup.data.staging.place import Folder, NotStaged
from rampup.data.staging.stage import Stage, describe_size

CHUNK_BYTES = 8 * 2**20
AT_ONCE_BYTES = 256 * 2**20
"""A larger file is copied while training continues with the file itself."""
JOURNAL_EVERY = 32
"""Chunks after which is noted how far a copy is, so that the next attempt can continue it."""
Found = tuple[str | None, bool]
"""A copy, and whether it was there already."""
NOTHING: Found = (None, False)
CLAIM, PART, JOURNAL, RECORD = ".claim", ".part", ".journal", ".json"


class Copies(Stage):
    """The copies of one set's files, as one rank makes and uses them."""

    def __init__(
        self,
        folder: Folder,
        attempt: int,
        say: Callable[[str], None],
        is_stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        super().__init__(folder, attempt, say)
        self._is_stopping = is_stopping
        self._ready: dict[str, str] = {}
        self._busy: set[str] = set()
        self._lock = threading.Lock()
        self._later: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def path_of(self, path: str | Path) -> str:
        """Return where to read a file: its copy, or the file itself."""
        source = os.fspath(path)
        copy = self._ready.get(source)
        if copy is not None and not os.path.exists(copy):
            self._ready.pop(source, None)  # somebody tidied up: the file itself is still there
            copy = None
        found, is_hit = (copy, True) if copy else self._find(source)
        self.count_read(is_hit)
        return found or source

    def _find(self, source: str) -> Found:
        """Return a copy that is made now, or that another rank or attempt has made."""
        with self._mine(source) as is_mine:
            if is_mine and not self.is_off:
                with self.stops_when_it_fails():
                    return self._make(source)
        return NOTHING

    @contextmanager
    def _mine(self, source: str) -> Iterator[bool]:
        """Only one thread of a rank works on a file."""
        with self._lock:
            is_mine = source not in self._busy
            self._busy.add(source)
        try:
            yield is_mine
        finally:
            if is_mine:
                with self._lock:
                    self._busy.discard(source)

    def _make(self, source: str, is_later: bool = False) -> Found:
        """Return the copy of a file: an earlier one, or a new one."""
        try:
            about = os.stat(source)
        except OSError:
            return NOTHING  # the reader will say what is wrong with it
        name = _name_of(source)
        stamp = {"size": about.st_size, "mtime": about.st_mtime_ns}
        if self._is_usable(name, stamp):
            return self._remember(source, name), True
        if self.is_stopped_by_another():
            return NOTHING
        if about.st_size > AT_ONCE_BYTES and not is_later:
            self._copy_later(source)
            return NOTHING
        if not self._folder.claim(f"{name}{CLAIM}-{self._attempt}"):
            return NOTHING
        began = time.monotonic()
        if not self._copy(source, name, stamp):
            return NOTHING
        self.count_staged(about.st_size, time.monotonic() - began)
        return self._remember(source, name), False

    def _remember(self, source: str, name: str) -> str:
        self._ready[source] = os.fspath(self._folder.path / name)
        return self._ready[source]

    # copies of an earlier attempt, or of another rank ---------------------------------------------

    def _is_usable(self, name: str, stamp: dict[str, int]) -> bool:
        """Return whether there is a copy of the file as it is now. One that another attempt has made
        is read once, for its checksum."""
        record = _decode(self._folder.read(name + RECORD))
        if record is None or any(record.get(key) != value for key, value in stamp.items()):
            return False
        try:
            fd = self._folder.open(name, os.O_RDONLY)
        except OSError:
            return False
        try:
            if os.fstat(fd).st_size != stamp["size"]:
                return False
            if record.get("attempt") == self._attempt:
                return True
            if _checksum(fd, stamp["size"]) != record.get("crc"):
                return False
        finally:
            os.close(fd)
        self._folder.write(name + RECORD, _encode({**record, "attempt": self._attempt}))
        return True

    # making one -----------------------------------------------------------------------------------

    def _copy_later(self, source: str) -> None:
        self._later.put(source)
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._copy_queued, name="rampup-stage", daemon=True
                )
                self._thread.start()

    def _copy_queued(self) -> None:
        done: set[str] = set()
        while not self.is_off:
            source = self._later.get()
            if source not in done:
                done.add(source)
                with self.stops_when_it_fails():
                    self._make(source, is_later=True)

    def _copy(self, source: str, name: str, stamp: dict[str, int]) -> bool:
        """Copy a file and check the copy; False where the run is to stop before that is done."""
        room = self._folder.free_bytes()
        begun = self._begun(name, stamp)
        if room < stamp["size"] - begun["done"]:
            raise NotStaged(
                f"{self._folder.path} has room for {describe_size(room)} more, "
                f"and {source} has {describe_size(stamp['size'])}"
            )
        mode = os.O_RDWR | os.O_CREAT | (0 if begun["done"] else os.O_TRUNC)
        target = self._folder.open(name + PART, mode)
        try:
            crc = self._copy_bytes(source, target, name, stamp, begun)
            if crc is None:
                return False
            if _checksum(target, stamp["size"]) != crc:
                raise NotStaged(f"{self._folder.path}: the copy of {source} is not what was copied")
        except (OSError, NotStaged):
            self._folder.remove(name + PART)  # make room again
            raise
        finally:
            os.close(target)
        os.rename(name + PART, name, src_dir_fd=self._folder.fd, dst_dir_fd=self._folder.fd)
        self._folder.write(name + RECORD, _encode({**stamp, "crc": crc, "attempt": self._attempt}))
        self._folder.remove(name + JOURNAL)
        return True

    def _copy_bytes(
        self, source: str, target: int, name: str, stamp: dict[str, int], begun: dict[str, int]
    ) -> int | None:
        """Return the checksum of what was copied; None if the run is to stop, or the file changed."""
        done, crc, chunks = begun["done"], begun["crc"], 0
        memory = memoryview(bytearray(CHUNK_BYTES))
        with open(source, "rb", buffering=0) as file:
            file.seek(done)
            while count := file.readinto(memory):
                _write(target, memory[:count], done)
                crc = zlib.crc32(memory[:count], crc)
                done, chunks = done + count, chunks + 1
                if chunks % JOURNAL_EVERY == 0:
                    self._folder.write(name + JOURNAL, _encode({**stamp, "done": done, "crc": crc}))
                if self._is_stopping():
                    return None
            about = os.fstat(file.fileno())
        is_same = about.st_mtime_ns == stamp["mtime"] and done == stamp["size"]
        return crc if is_same else None

    def _begun(self, name: str, stamp: dict[str, int]) -> dict[str, int]:
        """Return how far an earlier attempt came with the same file, if what it left is right."""
        nothing = {"done": 0, "crc": 0}
        record = _decode(self._folder.read(name + JOURNAL))
        if record is None or any(record.get(key) != value for key, value in stamp.items()):
            return nothing
        try:
            fd = self._folder.open(name + PART, os.O_RDONLY)
        except OSError:
            return nothing
        try:
            is_right = _checksum(fd, record["done"]) == record["crc"]
        finally:
            os.close(fd)
        return {"done": record["done"], "crc": record["crc"]} if is_right else nothing


def _name_of(source: str) -> str:
    """Return the name of a copy: that of the file, and what tells it from others of that name."""
    tag = hashlib.sha256(os.path.abspath(source).encode()).hexdigest()[:16]
    return f"{tag}-{os.path.basename(source)[-100:]}"


def _write(fd: int, data: memoryview, offset: int) -> None:
    while data:
        count = os.pwrite(fd, data, offset)
        data, offset = data[count:], offset + count


def _checksum(fd: int, size: int) -> int | None:
    """Return the checksum of the first `size` bytes; None where there are fewer."""
    crc, done = 0, 0
    memory = memoryview(bytearray(min(CHUNK_BYTES, max(1, size))))
    while done < size:
        count = os.preadv(fd, [memory[: size - done]], done)
        if not count:
            return None
        crc, done = zlib.crc32(memory[:count], crc), done + count
    return crc


def _encode(record: dict[str, Any]) -> bytes:
    return json.dumps(record).encode()


def _decode(data: bytes | None) -> dict[str, Any] | None:
    try:
        found = json.loads(data or b"")
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
