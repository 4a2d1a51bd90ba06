"""TFRecord files without TensorFlow: the frames of records, and the Examples in them.

A record is its length, a checksum of that, its bytes, and a checksum of those. A whole file may be
compressed with gzip. An Example is a protocol buffer: names, each with a list of bytes, floats or
integers. Only what is asked for is decoded. Lengths are believed only as far as the data reaches.
"""

import struct
import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rampup.data.formats.crc32c import masked_crc32c
from rampup.data.formats.disk import OpenFile, kept_buffer
from rampup.data.formats.inflate import inflate_pieces
from rampup.errors import RampupError

HEAD = struct.Struct("<QI")
CHECKSUM = struct.Struct("<I")
GZIP_MAGIC = b"\x1f\x8b"
MOST_BYTES = 1 << 28
"""A record that says it is longer is not read, unless its columns are."""
BYTES, FLOATS, INTEGERS = 1, 2, 3


class Damaged(Exception):
    """Why a record can't be used."""


class Feature(NamedTuple):
    kind: int
    content: memoryview


def is_gzip(file: OpenFile) -> bool:
    """Return whether a file is compressed. A record may begin with the same bytes by chance, and
    then the checksum of its length tells."""
    size = min(HEAD.size, file.stamp()[1])
    start = bytearray(size)
    file.read(memoryview(start), 0)
    if not start.startswith(GZIP_MAGIC):
        return False
    return size < HEAD.size or masked_crc32c(start[:8]) != HEAD.unpack(start)[1]


class Records:
    """The records of one file, one after the other."""

    def __init__(self, file: OpenFile, checksums: bool, most_bytes: int) -> None:
        self._file, self._checksums = file, checksums
        self._most_bytes = max(MOST_BYTES, most_bytes)
        self._size = file.stamp()[1]
        self._stream = _Inflated(file) if is_gzip(file) else None
        self.offset = 0
        """Where the next record begins, of what is inflated if the file is compressed."""
        self.number = 0

    @property
    def is_compressed(self) -> bool:
        return self._stream is not None

    def seek(self, number: int, offset: int) -> None:
        """Continue with a record whose place is known; not in compressed files."""
        self.number, self.offset = number, offset

    def read(self) -> memoryview | None:
        """Return the next record, or None at the end. It is valid until the next call."""
        try:
            length = self._read_head()
            if length is None:
                return None
            memory = kept_buffer(length + CHECKSUM.size)
            self._fill(memory, f"it says that it has {length} bytes")
        except Damaged as problem:
            raise self._error(problem) from problem
        content = memory[:length]
        if self._checksums and CHECKSUM.unpack(memory[length:])[0] != masked_crc32c(content):
            raise self._error(Damaged("its checksum is wrong"))
        self.number += 1
        return content

    def skip(self) -> bool:
        """Pass over the next record without looking at it; False at the end."""
        try:
            length = self._read_head()
            if length is None:
                return False
            left = length + CHECKSUM.size
            if self._stream is None:
                if self.offset + left > self._size:
                    raise Damaged(f"it says that it has {length} bytes, and the file ends before")
                self.offset += left
            while self._stream is not None and left:
                step = min(left, 1 << 20)
                self._fill(kept_buffer(step), f"it says that it has {length} bytes")
                left -= step
        except Damaged as problem:
            raise self._error(problem) from problem
        self.number += 1
        return True

    def _read_head(self) -> int | None:
        head = bytearray(HEAD.size)
        count = self._read_some(memoryview(head))
        if count == 0:
            return None
        if count < HEAD.size:
            raise Damaged("the file ends in its length")
        length, crc = HEAD.unpack(head)
        if crc != masked_crc32c(head[:8]):
            raise Damaged("the checksum of its length is wrong")
        if length > self._most_bytes:
            raise Damaged(f"it says that it has {length} bytes, more than {self._most_bytes}")
        return int(length)

    def _fill(self, memory: memoryview, about: str) -> None:
        if self._stream is None and self.offset + len(memory) > self._size:
            raise Damaged(f"{about}, and the file ends before")
        if self._read_some(memory) < len(memory):
            raise Damaged(f"{about}, and the file ends before")

    def _read_some(self, memory: memoryview) -> int:
        """Fill the memory as far as the file reaches."""
        if self._stream is None:
            count = max(0, min(len(memory), self._size - self.offset))
            self._file.read(memory[:count], self.offset)
        else:
            count = self._stream.read(memory)
        self.offset += count
        return count

    def _error(self, problem: Damaged) -> RampupError:
        return record_error(self._file.path, self.number, str(problem))


class _Inflated:
    """What a compressed file holds, as a stream."""

    def __init__(self, file: OpenFile) -> None:
        self._pieces: Iterator[bytes] = inflate_pieces(file.steps())
        self._piece = memoryview(b"")

    def read(self, memory: memoryview) -> int:
        done = 0
        while done < len(memory):
            if not len(self._piece) and not self._advance():
                break
            part = self._piece[: len(memory) - done]
            memory[done : done + len(part)] = part
            self._piece = self._piece[len(part) :]
            done += len(part)
        return done

    def _advance(self) -> bool:
        try:
            self._piece = memoryview(next(self._pieces, b""))
        except EOFError:
            raise Damaged("the compressed file is cut off") from None
        except zlib.error as error:
            raise Damaged(f"the compressed file is damaged: {error}") from None
        return len(self._piece) > 0


def record_error(path: str, number: int, detail: str) -> RampupError:
    return RampupError(
        f"{path}: record {number} can't be read: {detail}",
        "copy or download the file again, or leave it out of the list of files",
    )


# protocol buffers -------------------------------------------------------------------------------


def parse_example(content: memoryview) -> dict[str, Feature]:
    """Return the features of an Example by name, not yet decoded."""
    found = {}
    for number, features in _fields(content):
        if number != 1 or not isinstance(features, memoryview):
            continue
        for entry, pair in _fields(features):
            if entry == 1 and isinstance(pair, memoryview):
                name, feature = _parse_entry(pair)
                found[name] = feature
    return found


def _parse_entry(pair: memoryview) -> tuple[str, Feature]:
    name, feature = "", Feature(0, memoryview(b""))
    for number, value in _fields(pair):
        if not isinstance(value, memoryview):
            continue
        if number == 1:
            name = bytes(value).decode(errors="replace")
        elif number == 2:
            for kind, content in _fields(value):
                if isinstance(content, memoryview):
                    feature = Feature(kind, content)
    return name, feature


def decode_feature(feature: Feature, stored: np.dtype[Any]) -> NDArray[Any]:
    """Return the numbers of a feature: of its bytes as `stored` says, else of its list."""
    values = [value for number, value in _fields(feature.content) if number == 1]
    if feature.kind == BYTES:
        if len(values) != 1 or not isinstance(values[0], memoryview):
            raise Damaged(f"it is a list of {len(values)} byte strings, not one")
        if len(values[0]) % stored.itemsize:
            raise Damaged(f"its {len(values[0])} bytes are not whole numbers of {stored}")
        return np.frombuffer(values[0], stored)
    parts: list[NDArray[Any]] = []
    for value in values:
        if isinstance(value, int):
            parts.append(np.array([value], np.uint64).view(np.int64))
        elif feature.kind == FLOATS and len(value) % 4 == 0:
            parts.append(np.frombuffer(value, "<f4"))
        elif feature.kind == INTEGERS:
            parts.append(_varints(value))
        else:
            raise Damaged("it is not a list of numbers")
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts) if parts else np.empty(0, stored)


def _fields(content: memoryview) -> Iterator[tuple[int, memoryview | int]]:
    """Yield the fields of a message: number, and its bytes or its integer."""
    at = 0
    while at < len(content):
        key, at = _varint(content, at)
        wire = key & 7
        if wire == 0:
            value, at = _varint(content, at)
            yield key >> 3, value
            continue
        if wire == 2:
            length, at = _varint(content, at)
        elif wire in (1, 5):
            length = 8 if wire == 1 else 4
        else:
            raise Damaged("it is not an Example")
        if at + length > len(content):
            raise Damaged("it is not an Example: a part is longer than the whole")
        yield key >> 3, content[at : at + length]
        at += length


def _varint(content: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(content) and shift < 64:
        byte = content[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at
        shift += 7
    raise Damaged("it is not an Example: an integer does not end")


def _varints(content: memoryview) -> NDArray[np.int64]:
    """Return a packed list of integers."""
    data = np.frombuffer(content, np.uint8)
    if not len(data):
        return np.empty(0, np.int64)
    ends = np.flatnonzero(data < 0x80)
    starts = np.concatenate([[0], ends[:-1] + 1])
    if not len(ends) or ends[-1] + 1 != len(data) or (ends - starts >= 10).any():
        raise Damaged("it is not an Example: an integer does not end")
    places = np.arange(len(data)) - np.repeat(starts, ends - starts + 1)
    bits = (data & 0x7F).astype(np.uint64) << (7 * places).astype(np.uint64)
    return np.add.reduceat(bits, starts).view(np.int64)
