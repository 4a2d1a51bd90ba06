"""Validation is exact: one set of weights gives the same numbers on any number of ranks."""

import pytest

from .conftest import Case, Start

WORLDS = (1, 2, 3, 4, 8)
SIZE = 1009
"""A prime: no number of ranks divides it."""


@pytest.fixture(scope="module")
def cases(start: Start) -> dict[str, Case]:
    untrained = {"lr": 0.0, "epochs": 1, "every": "never", "eval_batch_size": 100}
    wanted = {
        f"{size}-{world}": {"world": world, "validation": size}
        for size in (SIZE, 5)
        for world in WORLDS
    }
    return start({name: case | untrained for name, case in wanted.items()})


@pytest.mark.parametrize("size", [SIZE, 5])
def test_equal_counts_and_losses(cases: dict[str, Case], size: int) -> None:
    rows = [cases[f"{size}-{world}"].epochs()[0] for world in WORLDS]
    counts = {row["val_accuracy"] * size for row in rows}
    assert len(counts) == 1 and min(counts) == pytest.approx(round(min(counts)))
    assert 0 < min(counts) < size or size == 5
    assert max(row["val_loss"] for row in rows) - min(row["val_loss"] for row in rows) < 1e-6
