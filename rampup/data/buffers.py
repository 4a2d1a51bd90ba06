"""Memory for batches that are read sample by sample: allocated once, filled again and again.

read_ahead.py takes a batch of buffers from a Pool and hands the arrays to an engine. The memory
returns to the pool when nothing uses it any more: neither the arrays, nor a tensor or a view that
was made of them without a copy. So a batch that somebody keeps is never overwritten, and nobody has
to give anything back by hand. It imports no framework.
"""

from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rampup.data.reader import Field

Arrays = tuple[NDArray[Any], ...]
ALIGNED_BYTES = 64
"""Where an array begins: a cache line, which is also where frameworks take memory without a
copy."""


class Pool:
    """Buffers of one set of fields. Threads may take and return them at any time."""

    def __init__(self, fields: Sequence[Field], keep_bytes: int) -> None:
        """`keep_bytes` limits the memory that is kept for later, not what is in use."""
        self._fields = [(tuple(field.shape), np.dtype(field.dtype)) for field in fields]
        self._keep_bytes = keep_bytes
        self._free: deque[NDArray[np.uint8]] = deque()

    def size(self, samples: int) -> int:
        """Return the bytes of the buffers for so many samples."""
        return sum(
            _aligned(samples * _count(shape) * kind.itemsize) for shape, kind in self._fields
        )

    def take(self, samples: int) -> Arrays:
        """Return an array for each field with a row for each sample; the contents are arbitrary."""
        memory = np.asarray(_Lease(self._find_block(self.size(samples)), self))
        arrays, begin = [], 0
        for shape, kind in self._fields:
            size = samples * _count(shape) * kind.itemsize
            arrays.append(memory[begin : begin + size].view(kind).reshape(samples, *shape))
            begin += _aligned(size)
        return tuple(arrays)

    def give_back(self, block: NDArray[np.uint8]) -> None:
        """Keep a block for the next batch. It may be called in the middle of anything, also of the
        methods of this class, so it takes no lock."""
        if (len(self._free) + 1) * block.nbytes <= self._keep_bytes:
            self._free.append(block)

    def _find_block(self, size: int) -> NDArray[np.uint8]:
        while True:
            try:
                block = self._free.pop()
            except IndexError:
                return _allocate(size)
            if block.nbytes >= size:
                return block  # a smaller one is dropped: batches have grown


class _Lease:
    """The owner of a block as long as any array refers to it.

    numpy keeps whatever an array was made of alive, through all views of it.
    """

    def __init__(self, block: NDArray[np.uint8], pool: Pool) -> None:
        self._block, self._pool = block, pool
        self.__array_interface__ = block.__array_interface__

    def __del__(self) -> None:
        self._pool.give_back(self._block)


def _allocate(size: int) -> NDArray[np.uint8]:
    block = np.empty(size + ALIGNED_BYTES, np.uint8)
    begin = -block.__array_interface__["data"][0] % ALIGNED_BYTES
    return block[begin : begin + size]


def _aligned(size: int) -> int:
    return -(-size // ALIGNED_BYTES) * ALIGNED_BYTES


def _count(shape: tuple[int, ...]) -> int:
    found = 1
    for length in shape:
        found *= length
    return found
