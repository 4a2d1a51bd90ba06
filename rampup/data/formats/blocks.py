"""Many samples in one file: read in blocks, never one here and one there.

A block is what a file format can read at once: chunks of HDF5, a row group of Parquet, a compressed
file. A shuffled epoch mixes the samples of a few blocks (`Blocks`), so a block is read once, kept
for as long as samples of it are asked for, and its memory is used for the next one.
"""

import threading
from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from rampup.data.formats.columns import Array, Column, ColumnReader, Decoder
from rampup.data.reader import Blocks
from rampup.errors import RampupError

BLOCK_BYTES = 1 << 20
"""How much is read at once where the format leaves the choice: a disk needs as long for less."""
CACHE_MB = 256
MOST_MIXED = 16

Arrays = tuple[Array, ...]
Indices = NDArray[np.int64]


class _Block:
    """A block that is being read, or is there."""

    def __init__(self, arrays: Arrays) -> None:
        self.arrays = arrays
        self.users = 0
        self.ready = threading.Event()
        self.error: BaseException | None = None


class BlockCache:
    """The blocks used last. Two threads never read the same one, and memory is used again: fresh
    memory costs more time than reading from the page cache."""

    def __init__(
        self, make: Callable[[], Arrays], load: Callable[[int, Arrays], None], most: int
    ) -> None:
        self._make, self._load, self._most = make, load, most
        self._blocks: OrderedDict[int, _Block] = OrderedDict()
        self._lock = threading.Lock()

    @contextmanager
    def hold(self, number: int) -> Iterator[Arrays]:
        """Return the arrays of a block, which stay as they are meanwhile."""
        with self._lock:
            block = self._blocks.get(number)
            is_new = block is None
            if block is None:
                block = self._blocks[number] = _Block(self._find_memory())
            block.users += 1
            self._blocks.move_to_end(number)
        try:
            if is_new:
                self._read(number, block)
            block.ready.wait()
            if block.error is not None:
                raise block.error
            yield block.arrays
        finally:
            with self._lock:
                block.users -= 1

    def _read(self, number: int, block: _Block) -> None:
        try:
            self._load(number, block.arrays)
        except BaseException as error:
            block.error = error
            with self._lock:
                del self._blocks[number]
        finally:
            block.ready.set()

    def _find_memory(self) -> Arrays:
        """Return memory for one more block: that of the oldest, if there are enough."""
        if len(self._blocks) >= self._most:
            for number, block in self._blocks.items():
                if block.users == 0:
                    del self._blocks[number]
                    return block.arrays
        return self._make()


class BlockReader(ColumnReader):
    """A reader of files with many samples each."""

    def __init__(self, columns: Mapping[str, Column], cache_mb: int = CACHE_MB) -> None:
        super().__init__(columns)
        if cache_mb < 1:
            raise RampupError(
                f"cache_mb={cache_mb} leaves no room for a block", "give it at least 1"
            )
        self._cache_bytes = cache_mb << 20
        self._surveying = threading.Lock()
        self._known_bounds: Indices | None = None
        self._longest = 1
        self._cache = BlockCache(self._make, self._load, 1)

    @abstractmethod
    def _survey(self) -> list[int]:
        """Look at all files once, and return the number of samples in each block."""

    @abstractmethod
    def _read_block(self, block: int, decoders: tuple[Decoder, ...], out: Arrays) -> None:
        """Read all samples of a block."""

    def _read_run(self, block: int, begin: int, decoders: tuple[Decoder, ...], out: Arrays) -> bool:
        """Read samples of a block from number `begin` on, as many as there is room for; False where
        that would read the block as a whole."""
        return False

    def __len__(self) -> int:
        return int(self._bounds()[-1])

    def blocks(self) -> Blocks | None:
        bounds = self._bounds()
        if self._longest == 1:
            return None
        return Blocks(bounds[:-1], int(np.clip(self._most_kept() // 2, 1, MOST_MIXED)))

    def _most_kept(self) -> int:
        """Return how many blocks are kept: those being mixed, and as many that come next."""
        fitting = self._cache_bytes // max(1, self._longest * self.kept_bytes)
        return max(1, min(fitting, 2 * MOST_MIXED))

    def _bounds(self) -> Indices:
        """Return where each block begins, and after the last one the number of samples."""
        with self._surveying:
            if self._known_bounds is None:
                counts = np.array(self._survey(), dtype=np.int64)
                self._longest = int(counts.max(initial=1))
                self._cache = BlockCache(self._make, self._load, self._most_kept())
                self._known_bounds = np.concatenate([[0], np.cumsum(counts)])
            return self._known_bounds

    def _make(self) -> Arrays:
        """Return memory for the longest block."""
        return tuple(np.empty((self._longest, *each.shape), each.dtype) for each in self.keepers)

    def _load(self, block: int, into: Arrays) -> None:
        bounds = self._bounds()
        count = int(bounds[block + 1] - bounds[block])
        self._read_block(block, self.keepers, tuple(array[:count] for array in into))

    def _fill(self, indices: Indices, decoders: tuple[Decoder, ...], out: Arrays) -> None:
        """Read the samples in the order of the files; that of a batch nearly always is."""
        if bool((indices[1:] >= indices[:-1]).all()):
            self._fill_sorted(indices, decoders, out)
            return
        rows = np.argsort(indices, kind="stable")
        found = tuple(np.empty_like(array) for array in out)
        self._fill_sorted(indices[rows], decoders, found)
        for array, values in zip(out, found, strict=True):
            array[rows] = values

    def _fill_sorted(self, indices: Indices, decoders: tuple[Decoder, ...], out: Arrays) -> None:
        bounds = self._bounds()
        blocks = np.searchsorted(bounds, indices, side="right") - 1
        cuts = [0, *(np.flatnonzero(blocks[1:] != blocks[:-1]) + 1).tolist(), len(blocks)]
        for begin, end in pairwise(cuts if len(blocks) else [0]):
            block, count = int(blocks[begin]), end - begin
            first, size = int(bounds[block]), int(bounds[block + 1] - bounds[block])
            local = indices[begin:end] - first
            targets = tuple(array[begin:end] for array in out)
            is_run = int(local[-1] - local[0]) == count - 1 and (np.diff(local) == 1).all()
            if is_run and count == size:
                self._read_block(block, decoders, targets)
            elif not (is_run and self._read_run(block, int(local[0]), decoders, targets)):
                self._pick(block, local, decoders, targets)

    def _pick(self, block: int, local: Indices, decoders: tuple[Decoder, ...], out: Arrays) -> None:
        """Take some samples of a block, which is read and kept before."""
        finishers = self.finishers if decoders is self.decoders else self.copiers
        with self._cache.hold(block) as arrays:
            for kept, decoder, array in zip(arrays, finishers, out, strict=True):
                if decoder.stored == decoder.dtype:
                    np.take(kept, local, axis=0, out=array, mode="clip")  # others make a copy
                    decoder.decode(array, array)
                else:
                    decoder.decode(np.take(kept, local, axis=0), array)
