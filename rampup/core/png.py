"""PNG files of 8 bits and three colours, written and read with nothing but zlib and numpy.

The job side draws what people look at with `write_png`; datasets/cifar.py reads pictures that hold a
data set. Other kinds of PNG (palettes, alpha, interlaced) are refused: nobody here makes or gets
them.
"""

import struct
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

SIGNATURE = b"\x89PNG\r\n\x1a\n"
PIXEL = 3
QUICK = 1
"""How hard zlib tries: pictures are drawn while a training waits."""

MOST_BYTES = 2**30
"""No picture of a data set is larger."""

Pixels = NDArray[np.uint8]


def write_png(pixels: Pixels) -> bytes:
    """Encode an array (height, width, 3)."""
    height, width, colours = pixels.shape
    if colours != PIXEL or pixels.dtype != np.uint8:
        raise ValueError(f"a picture has three colours of 8 bits, not {colours} of {pixels.dtype}")
    rows = np.zeros((height, 1 + width * PIXEL), np.uint8)  # each begins with its filter: none
    rows[:, 1:] = pixels.reshape(height, -1)
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = ((b"IHDR", head), (b"IDAT", zlib.compress(rows.tobytes(), QUICK)), (b"IEND", b""))
    return SIGNATURE + b"".join(_chunk(kind, data) for kind, data in parts)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def read_png(data: bytes) -> Pixels:
    """Return an array (height, width, 3); ValueError if the data is not such a picture."""
    chunks = list(_chunks(data))
    if not chunks or chunks[0][0] != b"IHDR" or len(chunks[0][1]) != 13:
        raise ValueError("it is not a PNG")
    width, height, *kind = struct.unpack(">IIBBBBB", chunks[0][1])
    if kind != [8, 2, 0, 0, 0]:
        raise ValueError("it is not a PNG of three colours with 8 bits each")
    expected = height * (1 + width * PIXEL)
    if not width or not height or expected > MOST_BYTES:
        raise ValueError(f"it has {width} by {height} pixels")
    packed = b"".join(content for name, content in chunks if name == b"IDAT")
    unpacker = zlib.decompressobj()
    try:  # a few MB may hold terabytes
        stored = unpacker.decompress(packed, expected + 1)
    except zlib.error as error:
        raise ValueError(f"its pixels are damaged: {error}") from None
    if len(stored) <= expected and not unpacker.eof:
        raise ValueError("its pixels are damaged: they end too early")
    if len(stored) != expected:
        more = "more than " if len(stored) > expected else ""
        raise ValueError(
            f"its pixels take {more}{min(len(stored), expected)} bytes, not {expected}"
        )
    rows = np.frombuffer(stored, np.uint8).reshape(height, -1)
    return _undo_filters(rows[:, 0], rows[:, 1:].reshape(height, width, PIXEL))


def _chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = len(SIGNATURE)
    if data[:at] != SIGNATURE:
        return
    while at + 12 <= len(data):
        (length,) = struct.unpack_from(">I", data, at)
        yield data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        at += 12 + length


def _undo_filters(filters: Pixels, rows: Pixels) -> Pixels:
    """Each row is stored as its difference to a guess from the pixels left of it and above."""
    found = np.empty_like(rows)
    above = np.zeros_like(rows[0])
    for index, kind in enumerate(filters.tolist()):
        if kind == 0:
            found[index] = rows[index]
        elif kind == 1:
            found[index] = np.cumsum(rows[index], axis=0, dtype=np.uint8)
        elif kind == 2:
            found[index] = rows[index] + above
        elif kind in (3, 4):
            found[index] = _undo_guess(kind, rows[index].astype(int), above.astype(int))
        else:
            raise ValueError(f"{kind} is not a row filter")
        above = found[index]
    return found


def _undo_guess(kind: int, row: NDArray[Any], above: NDArray[Any]) -> NDArray[Any]:
    """The two filters that need the pixel before: slow, and rare in what we read."""
    left = corner = np.zeros(PIXEL, int)
    found = np.empty_like(row)
    for index, up in enumerate(above):
        if kind == 3:
            guess = (left + up) // 2
        else:
            to_left, to_up, to_corner = (
                abs(up - corner),
                abs(left - corner),
                abs(left + up - 2 * corner),
            )
            nearer = np.where(to_up <= to_corner, up, corner)
            guess = np.where((to_left <= to_up) & (to_left <= to_corner), left, nearer)
        left = found[index] = (row[index] + guess) % 256
        corner = up
    return found
