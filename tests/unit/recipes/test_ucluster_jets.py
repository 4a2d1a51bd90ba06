"""How ucluster divides its jets, and the mass bins that it learns from."""

from pathlib import Path

import h5py
import numpy as np
import pytest

from rampup.errors import RampupError
from rampup.recipes.ucluster.jets import (
    CLASSES,
    FIXED_EDGES,
    fixed_bins,
    quantile_bins,
    read_parts,
    split,
)


def write(path: Path, rows: int) -> None:
    points = np.random.RandomState(rows).uniform(0.1, 1, (rows, 100, 8))
    with h5py.File(path, "w") as file:
        file["data"], file["pid"] = points, np.arange(rows)
        file["label"] = np.eye(3)[np.arange(rows) % 3]


def test_every_jet_is_in_one_part() -> None:
    parts = split(14_200)
    assert [len(part) for part in parts] == [9_000, 2_000, 3_200]
    assert (np.sort(np.concatenate(parts)) == np.arange(14_200)).all()
    for part, again, other in zip(parts, split(14_200), split(14_200, 1), strict=True):
        assert (part == again).all() and not np.array_equal(part, other)


def test_the_split_is_the_same_on_every_machine() -> None:
    """A split that changed would let a run train on what another is judged by."""
    assert [part[:4].tolist() for part in split(14_200)] == [
        [10614, 7552, 9232, 5820],
        [4256, 12327, 13759, 10764],
        [6142, 11981, 9788, 4912],
    ]


@pytest.mark.parametrize("size", [0, 1, 2, 7, 100])
def test_few_jets_are_divided_too(size: int) -> None:
    assert sum(map(len, split(size))) == size


def test_quantile_bins_hold_equally_many_training_jets() -> None:
    mass = np.random.RandomState(0).lognormal(4, 0.5, 6000)
    train = np.arange(0, 6000, 2)
    bins = quantile_bins(mass, 6, train)
    assert np.bincount(bins[train]).tolist() == [500] * 6
    assert (np.diff(bins[np.argsort(mass)]) >= 0).all(), "a heavier jet is never in a lower bin"
    mass[1::2] *= 100
    assert (quantile_bins(mass, 6, train)[train] == bins[train]).all(), "of training jets alone"
    with pytest.raises(RampupError, match="1 mass bins"):
        quantile_bins(mass, 1)
    with pytest.raises(RampupError, match="3001 mass bins, and 3000 jets to train on"):
        quantile_bins(mass, 3001, train)


def test_fixed_bins_are_those_of_the_set() -> None:
    assert len(FIXED_EDGES) == 21 and fixed_bins(np.array([80.4, 91.2])).tolist() == [7, 8]
    assert CLASSES == ("W", "Z", "top")


def test_files_in_parts_stay_in_theirs(tmp_path: Path) -> None:
    for name, rows in (("train_a", 30), ("train_b", 11), ("test_a", 9), ("eval_a", 5)):
        write(tmp_path / f"{name}.h5", rows)
    assert [len(part) for part in read_parts(tmp_path)] == [41, 9, 5]


def test_a_file_or_a_folder_without_parts_is_divided(tmp_path: Path) -> None:
    write(tmp_path / "a.h5", 71)
    assert [len(part) for part in read_parts(tmp_path / "a.h5")] == [45, 10, 16]
    write(tmp_path / "b.h5", 71)
    parts = read_parts(tmp_path)
    assert [len(part) for part in parts] == [90, 20, 32]
    found = np.concatenate([part.mass_bin for part in parts])
    assert (np.bincount(found) == 2).all(), "each jet of both files is in one part"
