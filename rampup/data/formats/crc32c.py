"""The checksum of TFRecords: CRC-32C, which neither Python nor numpy has.

The package `crc32c` computes it with the CPU's own instruction. Without the package numpy does it:
many pieces of the data side by side, joined by what a checksum does when zeros follow.
"""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

REVERSED = 0x82F63B78
LANES = 4096
SHORT = 1 << 15
"""Below this many bytes a plain loop takes about as long."""
MASK = 0xA282EAD8

Table = NDArray[np.uint32]


@functools.cache
def library() -> Callable[[Any], int]:
    try:
        from crc32c import crc32c
    except ImportError:
        return compute
    return crc32c


def masked_crc32c(data: bytes | bytearray | memoryview) -> int:
    """Return the checksum as TFRecords store it."""
    crc = library()(data)
    return ((crc >> 15 | crc << 17) + MASK) & 0xFFFFFFFF


def compute(data: bytes | bytearray | memoryview) -> int:
    """Compute the checksum with numpy."""
    content = np.frombuffer(data, np.uint8)
    crc, begin = 0xFFFFFFFF, 0
    if len(content) >= SHORT:
        length = len(content) // (4 * LANES) * 4
        begin = length * LANES
        crc = _compute_lanes(content[:begin].reshape(LANES, length), crc)
    table = _tables()[0]
    for byte in content[begin:].tolist():
        crc = int(table[(crc ^ byte) & 0xFF]) ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def _compute_lanes(lanes: NDArray[np.uint8], crc: int) -> int:
    """Return the checksum of the rows one after the other, which begins with `crc`."""
    _, last, first = _tables()
    found = np.zeros(len(lanes), "<u4")
    found[0] = crc
    for words in np.ascontiguousarray(lanes.view("<u4").T):
        halves = (found ^ words).view("<u2").reshape(-1, 2)
        found = first.take(halves[:, 0]) ^ last.take(halves[:, 1])
    shift = _shift_by(lanes.shape[1])
    joined = 0
    for each in found.tolist():
        joined = _shift(shift, joined) ^ each
    return joined


@functools.cache
def _tables() -> tuple[Table, Table, Table]:
    """Return what becomes of one byte, of two bytes, and of two bytes that two more follow."""
    one = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        one = np.where(one & 1, one >> 1 ^ REVERSED, one >> 1).astype(np.uint32)
    two = np.arange(1 << 16, dtype=np.uint32)
    for _ in range(2):
        two = one[two & 0xFF] ^ two >> 8
    return one, two, two[two & 0xFFFF] ^ two >> 16


@functools.lru_cache(maxsize=64)
def _shift_by(length: int) -> tuple[int, ...]:
    """Return what so many zero bytes do to each of the 32 bits of a checksum."""
    table = _tables()[0]
    one_byte = tuple(int(table[1 << bit & 0xFF]) ^ 1 << bit >> 8 for bit in range(32))
    power, result = one_byte, tuple(1 << bit for bit in range(32))
    while length:
        if length & 1:
            result = tuple(_shift(power, each) for each in result)
        power = tuple(_shift(power, each) for each in power)
        length >>= 1
    return result


def _shift(columns: tuple[int, ...], crc: int) -> int:
    found = 0
    while crc:
        lowest = crc & -crc
        found ^= columns[lowest.bit_length() - 1]
        crc ^= lowest
    return found
