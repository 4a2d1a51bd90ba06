"""Keras on data that is read while the steps compute: as data in memory, on workers and devices, and
when it is resumed in the middle of an epoch."""

from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

from .conftest import Case, Start
from .test_keras import furthest, steps_of

pytestmark = pytest.mark.skipif(
    find_spec("tf_keras") is None, reason="it needs pip install 'rampup[keras]'"
)

CUT: dict[str, Any] = {"entry": "train:StreamedNoisy", "ends": [], "how": "stop"}
CASES: dict[str, dict[str, Any]] = {
    "memory-1": {"world": 1},
    **{
        name: {"entry": "train:Streamed", **more}
        for name, more in {
            "plain-1": {"world": 1},
            "plain-2": {"world": 2},
            "plain-3": {"world": 3},
            "mirrored-1": {"world": 1, "cpu_devices": 2},
            "fails-2": {"world": 2, "failing_rank": 1},
        }.items()
    },
    "whole-1": {**CUT, "world": 1},
    "stopped-1": {**CUT, "world": 1, "attempts": (1, 1, 1), "ends": [6, 2]},
}


@pytest.fixture(scope="module")
def cases(start: Start) -> dict[str, Case]:
    found = start({name: {"engine": "keras", **case} for name, case in CASES.items()})
    for name, case in found.items():
        logs = [case.log(rank) for rank in range(case.worlds[-1])]
        assert name == "fails-2" or set(case.codes) == {0}, f"{name}: {logs}"
    return found


def test_the_same_batches_as_data_in_memory(cases: dict[str, Case]) -> None:
    steps = steps_of(cases["memory-1"])
    assert steps_of(cases["plain-1"]) == steps
    assert steps_of(cases["plain-2"]) == steps_of(cases["plain-3"]) == steps
    assert furthest(cases["memory-1"], cases["plain-1"]) == 0.0
    assert cases["memory-1"].rows_without_times() == cases["plain-1"].rows_without_times()


@pytest.mark.parametrize("name", ["plain-2", "plain-3", "mirrored-1"])
def test_weights_and_validation_agree_on_any_replicas(cases: dict[str, Case], name: str) -> None:
    one, several = cases["plain-1"], cases[name]
    assert one.end["metrics"]["step"] == 20
    assert furthest(one, several) < 1e-5
    for mine, theirs in zip(one.epochs(), several.epochs(), strict=True):
        assert mine["val_accuracy"] == theirs["val_accuracy"]
        assert mine["val_loss"] == pytest.approx(theirs["val_loss"], abs=1e-6)


def test_resumed_in_the_middle_of_an_epoch_it_is_equal(cases: dict[str, Case]) -> None:
    whole, parts = cases["whole-1"], cases["stopped-1"]
    assert [parts.run.attempt(number).resume_step() for number in (2, 3)] != [0, 0]
    pairs = zip(whole.state()["model"], parts.state()["model"], strict=True)
    assert all(np.array_equal(mine, theirs) for mine, theirs in pairs)
    assert whole.rows_without_times() == parts.rows_without_times()


def test_a_vanished_file_is_named_and_all_ranks_end(cases: dict[str, Case]) -> None:
    failed = cases["fails-2"]
    assert failed.codes[1] == 1 and failed.codes[0] != 0
    (error,) = [error for error in failed.attempt.errors() if error["rank"] == 1]
    assert error["message"] == "can't read /data/one.h5: No such file or directory"
    assert "put it back" in error["hint"]
