"""Any number of ranks takes the same steps, and the same run twice is the same run."""

from itertools import chain
from typing import Any

import pytest
import torch

from .conftest import Case, Start

CASES: dict[str, dict[str, Any]] = {
    **{f"plain-{world}": {"world": world} for world in (1, 2, 3)},
    **{
        f"noisy-{world}-{turn}": {"world": world, "entry": "train:Noisy"}
        for world in (1, 2, 3)
        for turn in "ab"
    },
    **{f"ddp-{world}": {"world": world, "gradients": "ddp"} for world in (2, 3)},
    **{f"accumulated-{world}": {"world": world, "accumulate": 3} for world in (1, 2)},
    "accumulated-ddp-3": {"world": 3, "accumulate": 4, "gradients": "ddp"},
    **{
        f"tiny-{world}": {"world": world, "samples": 41, "validation": 2, "epochs": 2}
        for world in (1, 3, 8)
    },
    "tiny-ddp-3": {"world": 3, "samples": 41, "validation": 2, "epochs": 2, "gradients": "ddp"},
    **{
        f"images-{world}": {
            "world": world,
            "entry": "train:Images",
            "channels_last": True,
            "clip": 0.1,
        }
        for world in (1, 2)
    },
    **{
        f"idle-{world}": {
            "world": world,
            "entry": "train:Idle",
            "optimizer": "adamw",
            "weight_decay": 0.5,
        }
        for world in (1, 2)
    },
    "first-is-best-2": {"world": 2, "monitor": "val_loss", "monitor_mode": "max"},
    "every-epoch-1": {"world": 1, "every": "1epoch", "monitor": "val_loss", "monitor_mode": "max"},
    "target-2": {"world": 2, "target": 0.6},
    "alone-2": {
        "world": 2,
        "validation": 0,
        "monitor": "train_loss",
        "monitor_mode": "min",
        "every": "never",
    },
}


@pytest.fixture(scope="module")
def cases(start: Start) -> dict[str, Case]:
    found = start(CASES)
    for name, case in found.items():
        assert set(case.codes) == {0}, f"{name}: {[case.log(rank) for rank in range(case.world)]}"
    return found


def furthest(one: Case, other: Case) -> float:
    """The largest difference between two weights."""
    mine, theirs = one.weights(), other.weights()
    assert mine.keys() == theirs.keys()
    return max(float((mine[name] - theirs[name]).abs().max()) for name in mine)


def steps_of(case: Case) -> list[list[int]]:
    """The samples of each step, over all ranks, in the order of the ranks."""
    return [list(chain(*pieces)) for pieces in zip(*case.traced("ids"), strict=True)]


def test_the_same_global_batches_on_any_number_of_ranks(cases: dict[str, Case]) -> None:
    steps = steps_of(cases["plain-1"])
    assert [len(step) for step in steps] == [40, 40, 40, 40, 37] * 4
    assert sorted(chain(*steps[:5])) == list(range(197)), "an epoch has every sample once"
    assert steps[:5] != steps[5:10], "the next epoch has another order"
    assert steps_of(cases["plain-2"]) == steps
    assert steps_of(cases["plain-3"]) == steps


def test_weights_agree_after_twenty_steps(cases: dict[str, Case]) -> None:
    assert cases["plain-1"].end["metrics"]["step"] == 20
    assert furthest(cases["plain-1"], cases["plain-2"]) < 1e-5
    assert furthest(cases["plain-1"], cases["plain-3"]) < 1e-5


def test_the_loss_is_that_of_all_ranks(cases: dict[str, Case]) -> None:
    for world in (2, 3):
        alone, together = (
            cases["plain-1"].attempt.metrics(),
            cases[f"plain-{world}"].attempt.metrics(),
        )
        for mine, theirs in zip(alone, together, strict=True):
            assert mine["train_loss"] == pytest.approx(theirs["train_loss"], abs=1e-5)


def test_the_loss_of_an_epoch_is_the_mean_over_its_samples(cases: dict[str, Case]) -> None:
    rows = cases["plain-2"].attempt.metrics()[:6]
    sizes = [40, 40, 40, 40, 37]
    mean = sum(size * row["train_loss"] for size, row in zip(sizes, rows[:5], strict=True)) / 197
    assert rows[5]["train_loss"] == pytest.approx(mean, rel=1e-6)


@pytest.mark.parametrize("world", [1, 2, 3])
def test_the_same_run_twice_is_equal_bit_for_bit(cases: dict[str, Case], world: int) -> None:
    one, other = cases[f"noisy-{world}-a"], cases[f"noisy-{world}-b"]
    assert furthest(one, other) == 0.0
    assert one.rows_without_times() == other.rows_without_times()
    assert len(one.rows_without_times()) == 24


def test_ranks_average_their_running_statistics(cases: dict[str, Case]) -> None:
    first, second = cases["noisy-2-a"].traced("mean")
    # The first entry is from the probe before training; all start at zero.
    assert first[0] == second[0] == [0.0] * 16
    assert first[1:] == second[1:] and any(first[1])


@pytest.mark.parametrize("world", [2, 3])
def test_ddp_takes_the_same_steps(cases: dict[str, Case], world: int) -> None:
    assert furthest(cases[f"plain-{world}"], cases[f"ddp-{world}"]) < 1e-6
    for mine, theirs in zip(
        cases[f"plain-{world}"].epochs(), cases[f"ddp-{world}"].epochs(), strict=True
    ):
        assert mine["train_loss"] == pytest.approx(theirs["train_loss"], abs=1e-6)


def test_ddp_says_nothing_of_its_own(cases: dict[str, Case]) -> None:
    assert "Warning" not in cases["ddp-2"].log(0) + cases["ddp-2"].log(1)
    assert cases["plain-2"].log(1) == ""


@pytest.mark.parametrize("world", [1, 2])
def test_accumulation_takes_the_same_steps(cases: dict[str, Case], world: int) -> None:
    pieces = cases[f"accumulated-{world}"].traced("ids")[0]
    assert len(pieces) == 60, "three pieces of each of twenty batches"
    assert furthest(cases[f"plain-{world}"], cases[f"accumulated-{world}"]) < 1e-6


def test_ddp_and_accumulation_together(cases: dict[str, Case]) -> None:
    assert furthest(cases["plain-3"], cases["accumulated-ddp-3"]) < 1e-6


@pytest.mark.parametrize("name", ["tiny-3", "tiny-8", "tiny-ddp-3"])
def test_a_batch_smaller_than_the_world(cases: dict[str, Case], name: str) -> None:
    assert [len(ids) for ids in cases["tiny-1"].traced("ids")[0]] == [40, 1] * 2
    assert len(cases[name].traced("ids")[-1]) == 2, "the last rank has no part in the small batches"
    assert furthest(cases["tiny-1"], cases[name]) < 1e-5
    assert cases["tiny-1"].end["metrics"]["val_loss"] == pytest.approx(
        cases[name].end["metrics"]["val_loss"], abs=1e-5
    )


def test_another_memory_layout_takes_the_same_steps(cases: dict[str, Case]) -> None:
    assert furthest(cases["images-1"], cases["images-2"]) < 1e-5
    assert all(chain(*cases["images-2"].traced("last")))
    assert cases["images-1"].weights()["0.weight"].is_contiguous(memory_format=torch.channels_last)


def test_all_ranks_stop_on_the_target(cases: dict[str, Case]) -> None:
    values = [row["val_accuracy"] for row in cases["target-2"].epochs()]
    assert values[-1] >= 0.6 and all(value < 0.6 for value in values[:-1])
    assert len(values) < 4
    assert cases["target-2"].end["best"] == {
        "metric": "val_accuracy",
        "value": values[-1],
        "epoch": len(values),
        "step": 5 * len(values),
        "mark": None,  # of a run with `patience`
        "mark_epoch": 0,
    }


def test_a_run_without_validation_and_checkpoints(cases: dict[str, Case]) -> None:
    case = cases["alone-2"]
    losses = [row["train_loss"] for row in case.epochs()]
    assert case.end["best"]["value"] == min(losses)
    assert case.end["checkpoint"] is None and not case.run.checkpoints.exists()


def kept(case: Case) -> set[str]:
    return {path.name for path in case.run.checkpoints.iterdir()}


def test_the_best_and_the_last_checkpoint_are_kept(cases: dict[str, Case]) -> None:
    assert kept(cases["plain-2"]) == {f"step-{cases['plain-2'].end['best']['step']}", "step-20"}
    assert kept(cases["first-is-best-2"]) == {"step-5", "step-20"}
    assert kept(cases["every-epoch-1"]) == {"step-5", "step-15", "step-20"}
    assert (
        not cases["alone-2"].run.checkpoints.exists() and cases["alone-2"].end["checkpoint"] is None
    )


def test_what_the_checkpoints_cost_is_recorded(cases: dict[str, Case]) -> None:
    cost = cases["every-epoch-1"].end["checkpoints"]
    assert (
        cost["count"] == 4 and 0 < cost["share"] < 1 and cost["stall_s"] > 0 and cost["write_s"] > 0
    )
    assert cases["alone-2"].end["checkpoints"] == {
        "count": 0,
        "stall_s": 0.0,
        "write_s": 0.0,
        "share": 0.0,
    }


def test_phases_explain_the_time(cases: dict[str, Case]) -> None:
    phases = cases["plain-2"].end["phases"]
    named = {name: seconds for name, seconds in phases.items() if name != "wall"}
    assert sum(named.values()) == pytest.approx(phases["wall"], abs=0.01)
    assert all(
        named[name] > 0
        for name in ("start", "data", "compute", "communication", "evaluation", "saving")
    )


def test_a_parameter_without_gradient_is_left_alone_on_any_number_of_ranks(
    cases: dict[str, Case],
) -> None:
    for world in (1, 2):
        assert cases[f"idle-{world}"].weights()["idle"].tolist() == [1.0, 1.0, 1.0]
    assert furthest(cases["idle-1"], cases["idle-2"]) < 1e-5
