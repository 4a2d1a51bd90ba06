"""Interrupted anywhere and resumed, a run ends as if nothing had happened: bit for bit, with
dropout, on any ranks."""

from itertools import chain
from typing import Any

import pytest
import torch

from .conftest import Case, Start

NOISY: dict[str, Any] = {"entry": "train:Interrupted", "ends": [], "how": "stop", "accumulate": 2}
# An epoch has five steps. Each rank adds two pieces per step, so its losses are counted in halves.
CASES: dict[str, dict[str, Any]] = {
    **{f"whole-{world}": {**NOISY, "world": world} for world in (1, 2, 3, 4)},
    # asked to stop: in the middle of an epoch, at its end, in the first step, twice
    **{
        f"stopped-{world}": {**NOISY, "world": world, "attempts": (world,) * 4, "ends": [13, 14, 2]}
        for world in (1, 2)
    },
    **{
        f"stopped-{world}": {**NOISY, "world": world, "attempts": (world,) * 3, "ends": [1, 23]}
        for world in (3, 4)
    },
    "stopped-at-an-epoch": {**NOISY, "world": 2, "attempts": (2, 2), "ends": [20]},
    # killed, while something may be written or between two checkpoints
    "killed-1": {
        **NOISY,
        "how": "killed",
        "world": 1,
        "attempts": (1, 1, 1),
        "ends": [17, 9],
        "every": "1steps",
    },
    "killed-2": {
        **NOISY,
        "how": "killed after a pause",
        "world": 2,
        "attempts": (2, 2, 2),
        "ends": [17, 9],
    }
    | {"every": "3steps"},
    "killed-3": {
        **NOISY,
        "how": "killed after a pause",
        "world": 3,
        "attempts": (3, 3, 3),
        "ends": [17, 9],
    }
    | {"every": "1epoch"},
    # damaged, and resumed from the one before
    "torn-2": {
        **NOISY,
        "entry": "train:Torn",
        "world": 2,
        "attempts": (2, 2),
        "ends": [15],
        "every": "3steps",
    },
    # other numbers of ranks
    "plain": {"world": 2, "entry": "train:Interrupted", "ends": []},
    "moved": {
        "world": 3,
        "attempts": (2, 3, 1),
        "entry": "train:Interrupted",
        "ends": [7, 6],
        "how": "stop",
    },
}


@pytest.fixture(scope="module")
def cases(start: Start) -> dict[str, Case]:
    found = start(CASES)
    for name, case in found.items():
        assert set(case.codes) == {0}, (
            f"{name}: {[case.log(rank) for rank in range(case.worlds[-1])]}"
        )
    return found


def assert_equal(one: Any, other: Any, place: str = "") -> None:
    """To the last bit, whatever is in it."""
    assert type(one) is type(other), place
    if isinstance(one, torch.Tensor):
        assert torch.equal(one, other), place
    elif isinstance(one, dict):
        assert one.keys() == other.keys(), place
        for key in one:
            assert_equal(one[key], other[key], f"{place}.{key}")
    elif isinstance(one, list | tuple):
        for index, pair in enumerate(zip(one, other, strict=True)):
            assert_equal(*pair, f"{place}.{index}")
    else:
        assert one == other, place


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith(("stopped", "killed"))])
def test_the_end_is_equal_bit_for_bit(cases: dict[str, Case], name: str) -> None:
    parts = cases[name]
    whole = cases[f"whole-{parts.world}"]
    assert parts.end["metrics"]["step"] == 20
    assert_equal(whole.state(), parts.state())
    assert whole.rows_without_times() == parts.rows_without_times()
    assert whole.end["best"] == parts.end["best"]


def test_a_damaged_checkpoint_costs_an_interval_and_nothing_else(cases: dict[str, Case]) -> None:
    torn = cases["torn-2"]
    warning, aside = [line for line in torn.log(0).splitlines() if "damaged" in line]
    assert warning.endswith(
        "step-8 is damaged: state.pt is not what was written; trying the one before"
    )
    assert aside.endswith("step-8 is damaged: set aside as damaged-step-8")
    assert torn.attempt.resume_step() == 6
    assert_equal(cases["whole-2"].state(), torn.state())
    assert sorted(path.name for path in torn.run.checkpoints.iterdir())[-1] == "step-20"


def test_they_were_really_interrupted(cases: dict[str, Case]) -> None:
    assert [cases["stopped-1"].run.attempt(number).resume_step() for number in (2, 3, 4)] == [
        7,
        14,
        15,
    ]
    assert cases["stopped-at-an-epoch"].attempt.resume_step() == 10
    assert [cases["stopped-3"].run.attempt(number).resume_step() for number in (2, 3)] == [1, 13]
    assert [cases["killed-2"].run.attempt(number).resume_step() for number in (2, 3)] == [6, 9]
    assert [cases["killed-3"].run.attempt(number).resume_step() for number in (2, 3)] == [5, 5]
    assert (
        cases["killed-1"].attempt.resume_step()
        >= cases["killed-1"].run.attempt(2).resume_step()
        >= 7
    )
    for number in (1, 2, 3):
        assert cases["stopped-1"].run.attempt(number).read_again() == "preempt"
        assert cases["stopped-1"].run.attempt(number).event("end") is None
    assert cases["killed-1"].run.attempt(1).read_again() == ""


def test_one_line_tells_where_it_goes_on(cases: dict[str, Case]) -> None:
    assert "\nresumed at step 15\n" in "\n" + cases["stopped-1"].log(0)
    assert "resumed" not in cases["stopped-2"].log(1)
    event = cases["stopped-2"].attempt.event("resumed")
    assert event is not None and event["exact"] is True


def test_another_number_of_ranks_says_that_it_is_not_exact(cases: dict[str, Case]) -> None:
    moved = cases["moved"]
    assert (
        "resumed at step 7; not bit for bit: 2 ranks then, 3 now"
        in moved.run.attempt(2).rank_log(0).read_text()
    )
    assert "resumed at step 13; not bit for bit: 3 ranks then, 1 now" in moved.log(0)
    event = moved.attempt.event("resumed")
    assert event is not None and (event["exact"], event["step"]) == (False, 13)


def test_another_number_of_ranks_uses_each_sample_once(cases: dict[str, Case]) -> None:
    moved, plain = cases["moved"], cases["plain"]
    assert moved.end["metrics"]["step"] == 20
    seen = sorted(chain(*chain(*moved.traced("ids"))))
    assert seen == sorted(list(range(197)) * 4), "four epochs, every sample once in each"
    rows, expected = moved.epochs(), plain.epochs()
    assert [row["step"] for row in moved.run.history() if "samples_s" in row] == [
        row["step"] for row in expected
    ]
    assert rows[-1]["val_loss"] == pytest.approx(expected[-1]["val_loss"], rel=0.5)
