"""Which samples belong to which step: computed from (seed, epoch) alone, so nothing has to be
stored.

The engines ask for an epoch's order and for their rank's piece of each global batch. The same
samples form the same global batch on any number of ranks, and an interrupted run finds its place
again from (epoch, step). Nothing here touches the data itself.
"""

import numpy as np
from numpy.typing import NDArray


def permutation(seed: int, epoch: int, size: int) -> NDArray[np.int64]:
    """Return the order of `size` samples in one epoch.

    Philox's raw numbers are the part of numpy that never changes between versions
    (`Generator.permutation` may), so a run keeps its order when its environment is renewed. Equal
    keys are all but impossible, and sorted stably.
    """
    keys = np.random.Philox(key=np.array([seed, epoch], dtype=np.uint64)).random_raw(size)
    return np.argsort(keys, kind="stable").astype(np.int64, copy=False)


def piece(low: int, high: int, rank: int, world: int) -> tuple[int, int]:
    """Return this rank's contiguous part of [low, high). The parts differ by at most one sample and
    may be empty."""
    share, rest = divmod(high - low, world)
    begin = low + rank * share + min(rank, rest)
    return begin, begin + share + (rank < rest)


def shard(size: int, rank: int, world: int) -> tuple[int, int]:
    """Return this rank's part of `size` samples: each sample is in exactly one shard."""
    return piece(0, size, rank, world)
