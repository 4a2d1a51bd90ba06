"""Random numbers of a rank with Keras: started from the seed of the run, taken for a checkpoint,
and put back.

The layers of a model (Dropout) have generators of their own, which are variables and saved with
them. This is about the rest: Python's, numpy's and Keras's sources. Operations of `tf.random`
without a generator keep a count that nobody can read; what must be repeated should use
`tf.random.stateless_*` or a layer.
"""

import random
from typing import Any

import numpy as np

from rampup.engines.keras.setup import tf_keras

RANK_STRIDE = 1_000_003
"""Between the seeds of two ranks, so that runs with seeds 1, 2, 3 ... do not share one."""


def of_rank(seed: int, rank: int) -> int:
    return seed + RANK_STRIDE * (rank + 1)


def start(seed: int) -> None:
    tf_keras.utils.set_random_seed(seed % 2**32)


def state() -> Any:
    """Of Python's and numpy's generators, as arrays."""
    _, keys, position, has_gauss, gauss = np.random.get_state(legacy=True)
    _, words, next_gauss = random.getstate()
    rest = [
        float(position),
        float(has_gauss),
        float(gauss),
        float(next_gauss is not None),
        next_gauss or 0.0,
    ]
    parts: list[Any] = [
        np.asarray(keys, np.uint32),
        np.asarray(words, np.uint32),
        np.array(rest, np.float64),
    ]
    return np.concatenate([part.view(np.int32) for part in parts])


def put_back(state: Any) -> None:
    keys, words = state[:624].view(np.uint32), state[624:1249].view(np.uint32)
    position, has_gauss, gauss, has_next, next_gauss = state[1249:].copy().view(np.float64).tolist()
    np.random.set_state(("MT19937", keys, int(position), int(has_gauss), gauss))
    random.setstate((3, tuple(int(word) for word in words), next_gauss if has_next else None))
