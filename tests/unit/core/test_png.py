"""PNG files: what is written can be read by everybody, and every filter of a row is understood."""

import io
import struct
import tracemalloc
import zlib

import numpy as np
import pytest
from PIL import Image

from rampup.core import png


def picture(height: int = 7, width: int = 5) -> png.Pixels:
    return np.random.default_rng(3).integers(0, 256, (height, width, 3), dtype=np.uint8)


def test_others_read_what_is_written() -> None:
    pixels = picture()
    with Image.open(io.BytesIO(png.write_png(pixels))) as found:
        assert np.array_equal(np.asarray(found), pixels)
    assert np.array_equal(png.read_png(png.write_png(pixels)), pixels)


@pytest.mark.parametrize("kind", range(5))
def test_every_filter(kind: int) -> None:
    """Rows as an encoder stores them, by the definition of each filter."""
    pixels = picture().astype(int)
    left = np.pad(pixels, ((0, 0), (1, 0), (0, 0)))[:, :-1]
    up = np.pad(pixels, ((1, 0), (0, 0), (0, 0)))[:-1]
    corner = np.pad(pixels, ((1, 0), (1, 0), (0, 0)))[:-1, :-1]
    guess = left + up - corner
    distance = np.stack([abs(guess - left), abs(guess - up), abs(guess - corner)])
    paeth = np.choose(distance.argmin(0), [left, up, corner])
    stored = (pixels - [0 * left, left, up, (left + up) // 2, paeth][kind]) % 256
    rows = b"".join(bytes([kind]) + row.astype(np.uint8).tobytes() for row in stored)
    assert np.array_equal(png.read_png(with_rows(rows)), pixels)


def with_rows(rows: bytes, kind: bytes = b"\x08\x02\0\0\0") -> bytes:
    parts = (
        (b"IHDR", struct.pack(">II", 5, 7) + kind),
        (b"IDAT", zlib.compress(rows)),
        (b"IEND", b""),
    )
    return png.SIGNATURE + b"".join(png._chunk(name, data) for name, data in parts)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "not a PNG"),
        (b"GIF89a", "not a PNG"),
        (png.SIGNATURE, "not a PNG"),
        (with_rows(b"", b"\x08\x06\0\0\0"), "three colours"),
        (with_rows(bytes(20)), "take 20 bytes, not 112"),
        (with_rows(bytes([9]) + bytes(111)), "9 is not a row filter"),
        (png.write_png(picture())[:-40], "damaged"),
    ],
)
def test_what_is_no_such_picture_is_refused(data: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        png.read_png(data)


def test_only_three_colours_of_bytes_are_written() -> None:
    with pytest.raises(ValueError, match="three colours"):
        png.write_png(np.zeros((2, 2, 4), np.uint8))


def test_what_is_unpacked_is_bounded() -> None:
    """A few MB may hold gigabytes: no more is unpacked than the picture has pixels."""
    bomb = zlib.compress(bytes(2**28), 9)
    head = struct.pack(">IIBBBBB", 4, 4, 8, 2, 0, 0, 0)
    parts = ((b"IHDR", head), (b"IDAT", bomb), (b"IEND", b""))
    data = png.SIGNATURE + b"".join(png._chunk(*part) for part in parts)
    tracemalloc.start()
    with pytest.raises(ValueError, match="more than 52 bytes, not 52"):
        png.read_png(data)
    assert tracemalloc.get_traced_memory()[1] < 2**23
    tracemalloc.stop()
    for size in ((0, 4), (2**31 - 1, 2**31 - 1)):
        head = struct.pack(">IIBBBBB", *size, 8, 2, 0, 0, 0)
        with pytest.raises(ValueError, match=r"by \d+ pixels"):
            png.read_png(png.SIGNATURE + png._chunk(b"IHDR", head) + png._chunk(b"IDAT", bomb))
