"""Samples as the model gets them, on the node's own disk: `stage=node decode=true`.

A DecodedReader stands before any SampleReader. What that reads and decodes once is written into one
file for the whole node, a record for each sample, and later epochs read the numbers from there. A
record counts when its entry in the index is written, which comes last; one of an earlier attempt is
checked by its checksum before it is used. What goes wrong costs the record and never the run.
"""

import hashlib
import math
import os
import struct
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rampup.data.reader import Blocks, Field, SampleReader
from rampup.data.staging.place import Folder, NotStaged
from rampup.data.staging.stage import Stage, describe_size

ENTRY = struct.Struct("<II")
"""A record's checksum, and the attempt that wrote or checked it; 0 where there is none."""
FILES_LOOKED_AT = 100
"""Files whose size and time are compared with those of an earlier attempt."""


class DecodedReader(SampleReader, Stage):
    """The samples of another reader, each decoded once on this node."""

    def __init__(
        self, reader: SampleReader, folder: Folder, attempt: int, say: Callable[[str], None]
    ) -> None:
        Stage.__init__(self, folder, attempt, say)
        self.source, self.fields = reader, reader.fields
        self._size = sum(map(_size, reader.fields))
        name = f"decoded-{_fingerprint(reader)}"
        self._entries = folder.open(f"{name}.index", os.O_RDWR | os.O_CREAT)
        self._records = folder.open(f"{name}.raw", os.O_RDWR | os.O_CREAT)
        self._known = np.zeros(len(reader), np.bool_)
        """Records that this process has written or checked."""
        room, wanted = folder.free_bytes(), self._size * len(reader)
        if room < wanted - os.fstat(self._records).st_blocks * 512:
            say(
                f"note: {folder.path} has room for {describe_size(room)}, and the decoded "
                f"samples are {describe_size(wanted)}: as many are staged as fit"
            )

    def __len__(self) -> int:
        return len(self.source)

    def files(self) -> list[Path]:
        return self.source.files()

    def blocks(self) -> Blocks | None:
        """Return the blocks of the files: the order is the same with staging and without."""
        return self.source.blocks()

    def read(self, indices: NDArray[np.int64], out: tuple[NDArray[np.generic], ...]) -> None:
        missing = []
        for row, index in enumerate(indices.tolist()):
            is_hit = self._load(index, _row(out, row))
            self.count_read(is_hit)
            if not is_hit:
                missing.append(row)
        for begin, end in _runs(missing):
            self.source.read(indices[begin:end], tuple(array[begin:end] for array in out))
            for row in range(begin, end):
                if not self.is_off:
                    with self.stops_when_it_fails():
                        self._store(int(indices[row]), _row(out, row))

    # records --------------------------------------------------------------------------------------

    def _load(self, index: int, parts: list[memoryview]) -> bool:
        """Read a record, if there is a sound one."""
        crc = None
        if not self._known[index]:
            entry = os.pread(self._entries, ENTRY.size, index * ENTRY.size)
            crc, attempt = ENTRY.unpack(entry) if len(entry) == ENTRY.size else (0, 0)
            if not attempt:
                return False
            if attempt == self._attempt:
                crc = None
        if _read(self._records, parts, index * self._size) != self._size:
            return False
        if crc is not None and crc != _checksum(parts):
            return False
        if crc is not None:
            with self.stops_when_it_fails():
                self._note(index, crc)
        self._known[index] = True
        return True

    def _store(self, index: int, parts: list[memoryview]) -> None:
        if self.is_stopped_by_another():
            return
        began = time.monotonic()
        if self._folder.free_bytes() < self._size:
            raise NotStaged(f"{self._folder.path} is full")
        _write(self._records, parts, index * self._size)
        self._note(index, _checksum(parts))
        self._known[index] = True
        self.count_staged(self._size, time.monotonic() - began)

    def _note(self, index: int, crc: int) -> None:
        entry = ENTRY.pack(crc, self._attempt)
        if os.pwrite(self._entries, entry, index * ENTRY.size) != ENTRY.size:
            raise NotStaged(f"{self._folder.path} is full")


def _row(out: tuple[NDArray[np.generic], ...], row: int) -> list[memoryview]:
    """Return the memory of one sample."""
    return [array[row : row + 1].reshape(-1).view(np.uint8).data for array in out]


def _runs(rows: list[int]) -> Iterator[tuple[int, int]]:
    """Return the rows as ranges [begin, end), as long as possible."""
    begin = 0
    for place, row in enumerate(rows):
        if place + 1 == len(rows) or rows[place + 1] != row + 1:
            yield rows[begin], row + 1
            begin = place + 1


def _read(fd: int, parts: list[memoryview], offset: int) -> int:
    """Fill the parts; returns how many bytes there were."""
    done = os.preadv(fd, parts, offset)
    wanted = sum(part.nbytes for part in parts)
    while 0 < done < wanted:
        more = os.preadv(fd, _after(parts, done), offset + done)
        if not more:
            break
        done += more
    return done


def _write(fd: int, parts: list[memoryview], offset: int) -> None:
    done, wanted = 0, sum(part.nbytes for part in parts)
    while done < wanted:
        done += os.pwritev(fd, _after(parts, done), offset + done)


def _after(parts: list[memoryview], done: int) -> list[memoryview]:
    """Return what is left of the parts after so many bytes."""
    left = []
    for part in parts:
        if done < part.nbytes:
            left.append(part[done:])
        done = max(0, done - part.nbytes)
    return left


def _checksum(parts: list[memoryview]) -> int:
    crc = 0
    for part in parts:
        crc = zlib.crc32(part, crc)
    return crc


def _size(field: Field) -> int:
    return math.prod(field.shape) * np.dtype(field.dtype).itemsize


def _fingerprint(reader: SampleReader) -> str:
    """Return what tells these samples from others: their form, and the files that they are in."""
    found = [repr((len(reader), [(f.shape, np.dtype(f.dtype).str) for f in reader.fields]))]
    files = list(reader.files())
    step = max(1, len(files) // FILES_LOOKED_AT)
    for file in files[::step]:
        try:
            about = os.stat(file)
        except OSError:
            continue  # the reader will say what is wrong with it
        found.append(f"{file} {about.st_size} {about.st_mtime_ns}")
    return hashlib.sha256("\n".join(found).encode()).hexdigest()[:16]
