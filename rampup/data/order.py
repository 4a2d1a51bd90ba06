"""Which samples belong to which step: computed from (seed, epoch) alone, so nothing has to be
stored.

The engines ask for an epoch's order and for their rank's piece of each global batch. The same
samples form the same global batch on any number of ranks, and an interrupted run finds its place
again from (epoch, step). Nothing here touches the data itself.
"""

import numpy as np
from numpy.typing import NDArray

from rampup.data.reader import Blocks


def permutation(seed: int, epoch: int, size: int) -> NDArray[np.int64]:
    """Return the order of `size` samples in one epoch.

    Philox's raw numbers are the part of numpy that never changes between versions
    (`Generator.permutation` may), so a run keeps its order when its environment is renewed. Equal
    keys are all but impossible, and sorted stably.
    """
    return np.argsort(_draw_keys(seed, epoch, size), kind="stable").astype(np.int64, copy=False)


def block_permutation(
    seed: int, epoch: int, size: int, blocks: Blocks, batch: int
) -> NDArray[np.int64]:
    """Return the order of one epoch for samples that are cheap to read in blocks.

    The blocks come in random order. The samples of each `blocks.mixed` of them are mixed and dealt
    to global batches of `batch` samples. Within a batch they stand in the order of their numbers,
    so that a rank's piece of it touches few blocks. This is not a permutation of all samples, but
    it follows from the same facts alone: it is the same for any number of ranks.
    """
    keys = _draw_keys(seed, epoch, len(blocks.starts) + size)
    by_chance = np.argsort(keys[: len(blocks.starts)], kind="stable")
    lengths = np.diff(blocks.starts, append=size)[by_chance]
    ends = np.cumsum(lengths)
    order = np.arange(size) + np.repeat(blocks.starts[by_chance] - (ends - lengths), lengths)
    group = np.repeat(np.arange(len(lengths)) // blocks.mixed, lengths)
    order = order[np.lexsort((keys[len(blocks.starts) :], group))]
    found: NDArray[np.int64] = order[np.lexsort((order, np.arange(size) // batch))]
    return found


class EpochOrder:
    """The order of each epoch of samples that are read one by one; remembers the last two, because
    the next epoch begins to be read before this one ends."""

    def __init__(self, seed: int, size: int, batch: int, blocks: Blocks | None = None) -> None:
        self._seed, self._size, self._batch, self._blocks = seed, size, batch, blocks
        self._known: dict[int, NDArray[np.int64]] = {}

    def __call__(self, epoch: int) -> NDArray[np.int64]:
        found = self._known.get(epoch)
        if found is None:
            if self._blocks is None:
                found = permutation(self._seed, epoch, self._size)
            else:
                found = block_permutation(self._seed, epoch, self._size, self._blocks, self._batch)
            self._known = {
                each: order for each, order in self._known.items() if each >= epoch - 1
            } | {epoch: found}
        return found


def _draw_keys(seed: int, epoch: int, count: int) -> NDArray[np.uint64]:
    """Return a random number for each of `count` things."""
    philox = np.random.Philox(key=np.array([seed, epoch], dtype=np.uint64))
    return np.asarray(philox.random_raw(count), dtype=np.uint64)


def piece(low: int, high: int, rank: int, world: int) -> tuple[int, int]:
    """Return this rank's contiguous part of [low, high). The parts differ by at most one sample and
    may be empty."""
    share, rest = divmod(high - low, world)
    begin = low + rank * share + min(rank, rest)
    return begin, begin + share + (rank < rest)


def shard(size: int, rank: int, world: int) -> tuple[int, int]:
    """Return this rank's part of `size` samples: each sample is in exactly one shard."""
    return piece(0, size, rank, world)
