"""Data that is read while the steps compute trains as data in memory does: the same batches, the
same weights, the same validation, also when it is resumed in the middle of an epoch."""

import json
from itertools import chain
from typing import Any

import pytest

from rampup.runs.summary import describe_reading, reading_of

from .conftest import Case, Start
from .test_resume import assert_equal
from .test_steps import furthest, steps_of

NOISY: dict[str, Any] = {"ends": [], "how": "stop", "accumulate": 2, "readers": 3}
STREAMED = {**NOISY, "entry": "train:Streamed"}
CASES: dict[str, dict[str, Any]] = {
    "memory-1": {"world": 1},
    **{f"plain-{world}": {"world": world, "entry": "train:StreamedPlain"} for world in (1, 2, 3)},
    "augmented-memory-1": {"world": 1, "entry": "train:Augmented"},
    **{
        f"augmented-{world}": {"world": world, "entry": "train:StreamedAugmented"}
        for world in (1, 2)
    },
    "named-memory": {"world": 2, "entry": "train:Named", "eval_batch_size": 7},
    "named": {"world": 2, "entry": "train:StreamedNamed", "eval_batch_size": 7},
    **{
        f"noisy-memory-{world}": {**NOISY, "entry": "train:Interrupted", "world": world}
        for world in (1, 2, 3)
    },
    **{f"noisy-{world}": {**STREAMED, "world": world} for world in (1, 2, 3)},
    **{
        f"stopped-{world}": {**STREAMED, "world": world, "attempts": (world,) * 3, "ends": [13, 14]}
        for world in (1, 2, 3)
    },
    "slow-2": {
        **STREAMED,
        "world": 2,
        "attempts": (2, 2),
        "ends": [13],
        "pause_s": 0.02,
        "readers": 1,
        "how": "killed after a pause",
        "every": "3steps",
    },
    **{
        f"{name}-{world}": {
            **STREAMED,
            "world": world,
            "attempts": (world, world),
            "ends": [13],
            "stages": True,
            "stage": "node",
            **more,
        }
        for name, more in {
            "decoded": {"decode": True},
            "copied": {"entry": "train:Staged"},
        }.items()
        for world in (1, 2)
    },
    "nowhere-1": {"world": 1, "entry": "train:StreamedPlain", "stage": "node", "decode": True},
    "fails-2": {"world": 2, "entry": "train:StreamedPlain", "failing_rank": 1},
    "lightning-2": {"world": 2, "entry": "train:StreamedPlain", "loop": "lightning"},
}


@pytest.fixture(scope="module")
def cases(start: Start) -> dict[str, Case]:
    found = start(CASES)
    for name, case in found.items():
        logs = [case.log(rank) for rank in range(case.worlds[-1])]
        assert name == "fails-2" or set(case.codes) == {0}, f"{name}: {logs}"
    return found


def test_on_one_rank_it_is_equal_to_data_in_memory_bit_for_bit(cases: dict[str, Case]) -> None:
    assert_equal(cases["memory-1"].state(), cases["plain-1"].state())
    assert cases["memory-1"].rows_without_times() == cases["plain-1"].rows_without_times()


@pytest.mark.parametrize("world", [1, 2, 3])
def test_with_random_numbers_it_is_equal_too(cases: dict[str, Case], world: int) -> None:
    memory, streamed = cases[f"noisy-memory-{world}"], cases[f"noisy-{world}"]
    assert_equal(memory.state(), streamed.state())
    assert memory.rows_without_times() == streamed.rows_without_times()


@pytest.mark.parametrize("world", [2, 3])
def test_any_number_of_ranks_trains_alike(cases: dict[str, Case], world: int) -> None:
    one, several = cases["plain-1"], cases[f"plain-{world}"]
    assert one.end["metrics"]["step"] == 20
    assert furthest(one, several) < 1e-5
    assert steps_of(several) == steps_of(one) == steps_of(cases["memory-1"])
    for mine, theirs in zip(one.epochs(), several.epochs(), strict=True):
        assert mine["val_accuracy"] == theirs["val_accuracy"]
        assert mine["val_loss"] == pytest.approx(theirs["val_loss"], abs=1e-5)


def test_a_sample_is_augmented_by_its_number_whoever_reads_it(cases: dict[str, Case]) -> None:
    one, two = cases["augmented-1"], cases["augmented-2"]
    assert_equal(cases["augmented-memory-1"].state(), one.state())
    assert furthest(one, two) < 1e-5
    assert furthest(one, cases["plain-1"]) > 1e-3, "it makes a difference"


@pytest.mark.parametrize("world", [1, 2, 3])
def test_resumed_in_the_middle_of_an_epoch_it_is_equal(cases: dict[str, Case], world: int) -> None:
    whole, parts = cases[f"noisy-{world}"], cases[f"stopped-{world}"]
    assert [parts.run.attempt(number).resume_step() for number in (2, 3)] == [7, 14]
    assert_equal(whole.state(), parts.state())
    assert whole.rows_without_times() == parts.rows_without_times()


def test_a_slow_reader_and_a_killed_rank_change_nothing(cases: dict[str, Case]) -> None:
    assert cases["slow-2"].attempt.resume_step() == 6
    assert_equal(cases["noisy-2"].state(), cases["slow-2"].state())


def test_lightning_takes_the_same_batches(cases: dict[str, Case]) -> None:
    assert steps_of(cases["lightning-2"]) == steps_of(cases["plain-2"])
    assert furthest(cases["lightning-2"], cases["plain-2"]) < 1e-5


def test_the_validation_counts_each_sample_once(cases: dict[str, Case]) -> None:
    seen = {}
    for name in ("named", "named-memory"):
        batches = chain(*cases[name].traced("said"))
        seen[name] = sorted(chain(*(ids for ids, *_ in batches)))
    tried = [197, 197]  # one sample on each rank shows which metrics there are
    assert seen["named"] == sorted(4 * list(range(197, 247)) + tried)
    assert cases["named"].epochs()[-1]["val_f1"] == cases["named-memory"].epochs()[-1]["val_f1"]
    assert (
        cases["named"].attempt.evaluation()["samples"]
        == (cases["named-memory"].attempt.evaluation()["samples"])
    )


def test_a_vanished_file_is_named_and_all_ranks_end(cases: dict[str, Case]) -> None:
    failed = cases["fails-2"]
    assert failed.codes == [1, 1]
    first, second = (failed.run.attempt(1).error_file(rank) for rank in (0, 1))
    assert "lost contact with another rank" in first.read_text()
    error = json.loads(second.read_text())
    assert error["message"] == "can't read /data/one.h5: No such file or directory"
    assert "put it back" in error["hint"]


@pytest.mark.parametrize("name", ["decoded-1", "decoded-2", "copied-1", "copied-2"])
def test_staged_data_trains_alike_also_when_it_is_resumed(
    cases: dict[str, Case], name: str
) -> None:
    staged = cases[name]
    assert_equal(cases[f"noisy-{staged.world}"].state(), staged.state())
    first, second = (staged.run.attempt(number).event("data") for number in (1, 2))
    assert first and second
    assert first["staged_bytes"] > 0
    assert second["hits"] > 0, "what the first attempt has staged is used again"
    if staged.world == 1:
        assert second["reads"] - second["hits"] < first["reads"] - first["hits"]


@pytest.mark.parametrize("name", ["decoded-2", "copied-2"])
def test_the_disk_is_empty_when_the_run_has_ended(cases: dict[str, Case], name: str) -> None:
    disk = cases[name].disk
    assert disk is not None
    (own,) = disk.iterdir()
    assert list(own.iterdir()) == []


def test_without_a_disk_of_the_node_nothing_is_staged_and_a_line_says_so(
    cases: dict[str, Case],
) -> None:
    case = cases["nowhere-1"]
    assert "note: nothing is staged, the files themselves are read: no disk" in case.log(0)
    assert_equal(case.state(), cases["plain-1"].state())


def test_show_says_what_was_read(cases: dict[str, Case]) -> None:
    found = {**reading_of(cases["decoded-2"].run), "staged_bytes": 1e9}
    assert found["readers"] == 3 and found["seconds"] > 0
    line = describe_reading({**found, "bytes": 2.5e9, "seconds": 10.0, "staged_s": 1.0})
    assert line.startswith("2.5 GB read, 250 MB/s, 3 readers, ")
    assert "% from the node's disk" in line and "staged at" in line
    assert reading_of(cases["memory-1"].run) == {}
