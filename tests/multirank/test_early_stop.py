"""`patience` ends a training on all ranks at the same epoch, with both loops of a torch recipe, and
after a resume as without one."""

from typing import Any

import pytest

from .conftest import Case, Start

STEPS = 5
"""In an epoch."""
STILL: dict[str, Any] = {"lr": 0.0, "monitor": "val_loss", "patience": 2, "epochs": 9}
CASES: dict[str, dict[str, Any]] = {
    "torch-1": {**STILL, "world": 1},
    "torch-2": {**STILL, "world": 2},
    "lightning-1": {**STILL, "world": 1, "loop": "lightning"},
    "lightning-2": {**STILL, "world": 2, "loop": "lightning"},
    "learns-1": {**STILL, "world": 1, "lr": 0.01, "min_delta": 100.0},
    "patient-1": {**STILL, "world": 1, "patience": None, "epochs": 4},
}


@pytest.fixture(scope="module")
def cases(start: Start) -> dict[str, Case]:
    found = start(CASES)
    for name, case in found.items():
        assert set(case.codes) == {0}, f"{name}: {case.log(0)}"
    return found


@pytest.mark.parametrize("name", ["torch-1", "torch-2", "lightning-1", "lightning-2"])
def test_it_ends_after_two_epochs_without_a_better_value(cases: dict[str, Case], name: str) -> None:
    case = cases[name]
    assert case.end["metrics"]["step"] == 3 * STEPS
    assert "stopped early: val_loss has not improved since epoch 1" in case.log(0)


def test_an_improvement_that_is_too_small_does_not_count(cases: dict[str, Case]) -> None:
    assert cases["learns-1"].end["metrics"]["step"] == 3 * STEPS
    assert "has not improved by 100 since epoch 1" in cases["learns-1"].log(0)


def test_without_patience_a_run_goes_to_its_end(cases: dict[str, Case]) -> None:
    assert cases["patient-1"].end["metrics"]["step"] == 4 * STEPS
