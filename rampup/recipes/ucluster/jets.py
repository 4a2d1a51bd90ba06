"""The jets that ucluster clusters: read, put into mass bins, and divided into three parts.

train.py calls it on every rank, and the baselines call it too. It imports no framework. The mass
bins are what the network learns to tell apart; labels are for counting afterwards alone.
"""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rampup.recipe import (
    RampupError,
    fixed_mass_bins,
    list_jet_files,
    mass_bin_edges,
    read_jets,
)

__all__ = [
    "CLASSES",
    "FIXED_EDGES",
    "fixed_bins",
    "quantile_bins",
    "read_jets",
    "read_parts",
    "split",
]

CLASSES = ("W", "Z", "top")
"""In the order of the labels."""
FIXED_EDGES = np.asarray(mass_bin_edges())
"""Of the mass bins in GeV: 19 equal ones up to 200, and one for the rest, which stays empty."""
SHARES = (9_000 / 14_200, 2_000 / 14_200)
"""For training and for validation; the rest is a third part that no choice is made on."""

fixed_bins = fixed_mass_bins

Integers = NDArray[np.int64]


def quantile_bins(mass: NDArray[Any], count: int, train: Integers | None = None) -> Integers:
    """Return a bin for each mass, so that each has equally many of the training jets."""
    if count < 2:
        raise RampupError(f"{count} mass bins are not enough to learn from", "mass_bins=6")
    known = mass if train is None else mass[train]
    if count > len(known):
        raise RampupError(
            f"{count} mass bins, and {len(known)} jets to train on", f"bins={max(2, len(known))}"
        )
    inner = np.quantile(known.astype(np.float64), np.arange(1, count) / count)
    return np.searchsorted(inner, mass, side="right").astype(np.int64)


def split(size: int, seed: int = 0) -> tuple[Integers, Integers, Integers]:
    """Return the rows for training, for validation, and of the third part.

    They depend on the numbers alone, never on the rank. A recipe keeps one seed for all its runs,
    so that no run trains on what another one is judged by.
    """
    keys = np.random.Philox(key=seed).random_raw(size)
    order = np.argsort(keys, kind="stable").astype(np.int64)
    ends = np.cumsum([round(share * size) for share in SHARES])
    train, validation, third = np.split(order, ends)
    return train, validation, third


def read_parts(path: str | Path | None = None) -> tuple[Any, Any, Any]:
    """Return the jets for training, for validation, and of the third part.

    They are those that come with rampup, or of a file, or of a folder. Files in parts stay in
    theirs; all others are put together and divided by `split`.
    """
    if path is not None:
        train, *others = list_jet_files(path).values()
        if all(others):
            return read_jets(train), read_jets(others[0]), read_jets(others[1])
    jets = read_jets(path)
    first, second, third = (jets.take(rows) for rows in split(len(jets)))
    return first, second, third
