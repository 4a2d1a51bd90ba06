"""Real handwritten digits, 8 by 8 pixels, as arrays. They come with scikit-learn: nothing to
download.

Make it yours: return (x, y), (x_validation, y_validation), the same on every rank. Compute nodes
are often offline, so download before the run.
"""

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

HELD_BACK = 360
"""Samples that are kept for validation."""
BRIGHTEST = 16
SPLIT_SEED = 0

Samples = tuple[NDArray[np.float32], NDArray[np.int64]]


def load_data() -> tuple[Samples, Samples]:
    digits = load_digits()
    order = np.random.default_rng(SPLIT_SEED).permutation(len(digits.target))
    images = (digits.images[order, :, :, None] / BRIGHTEST).astype(np.float32)
    labels = digits.target[order].astype(np.int64)
    return (images[HELD_BACK:], labels[HELD_BACK:]), (images[:HELD_BACK], labels[:HELD_BACK])
