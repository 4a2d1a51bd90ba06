"""The keras engine keeps the same promises on real ranks: same steps, exact validation, resume bit
for bit."""

import json
from importlib.util import find_spec
from itertools import chain
from typing import Any

import numpy as np
import pytest

from rampup.runtime.checkpoints.store import find_differences

from .conftest import Case, Start

pytestmark = pytest.mark.skipif(
    find_spec("tf_keras") is None, reason="it needs pip install 'rampup[keras]'"
)

CUT: dict[str, Any] = {"entry": "train:Interrupted", "ends": [], "how": "stop"}
SHORT: dict[str, Any] = {"samples": 124, "epochs": 2}
# An epoch has five steps. What is asked for in one step is heard before the next, and agreed with
# it.
CASES: dict[str, dict[str, Any]] = {
    **{f"plain-{world}": {"world": world} for world in (1, 2, 3)},
    "mirrored-1": {"world": 1, "cpu_devices": 2},
    "tiny-3": {"world": 3, "samples": 41, "validation": 2, "epochs": 1},
    **{f"whole-{world}": {**CUT, "world": world} for world in (1, 2)},
    "stopped-1": {**CUT, "world": 1, "attempts": (1, 1, 1), "ends": [6, 2]},
    "stopped-2": {**CUT, "world": 2, "attempts": (2, 2), "ends": [12]},
    "killed-1": {
        **CUT,
        "how": "killed",
        "world": 1,
        "attempts": (1, 1, 1),
        "ends": [8, 5],
        "every": "1steps",
    },
    # in the second save, of step 5: arrays are written; all is written, and only the rename is not
    # done; after that
    **{
        f"killed-at-{number}": {
            **CUT,
            "world": 1,
            "attempts": (1, 1),
            "every": "3steps",
            "killed_at_sync": number,
        }
        for number in (9, 11, 12)
    },
    "torn-1": {
        **CUT,
        "entry": "train:Torn",
        "world": 1,
        "attempts": (1, 1),
        "ends": [7],
        "every": "3steps",
    },
    "whole-mirrored": {**CUT, "world": 1, "cpu_devices": 2},
    # two in each step
    "stopped-mirrored": {**CUT, "world": 1, "cpu_devices": 2, "attempts": (1, 1), "ends": [13]},
    "normed-2": {"world": 2, "entry": "train:Normed", "epochs": 2},
    "normed-mirrored": {"world": 1, "entry": "train:Normed", "epochs": 2, "cpu_devices": 2},
    "shuffled-2": {
        **CUT,
        "entry": "train:Shuffled",
        "world": 2,
        "attempts": (2, 2),
        "ends": [1],
        "epochs": 1,
    },
    "rounded": {"world": 2, "entry": "train:Rounded", "monitor": "train_loss"},
    "differing": {"world": 2, "entry": "train:Differing", "monitor": "train_loss"},
    "moved": {**CUT, "world": 2, "attempts": (2, 1), "ends": [7]},
    "branching-1": {"world": 1, "entry": "train:Branching", "epochs": 1},
    # four steps per epoch: 40, 40, 40 and 4
    "short-1": {**SHORT, "entry": "train:Normed", "world": 1},
    "short-3": {**SHORT, **CUT, "world": 3},
    "short-stopped-3": {**SHORT, **CUT, "world": 3, "attempts": (3, 3), "ends": [2]},
    "short-mirrored": {**SHORT, "entry": "train:Normed", "world": 1, "cpu_devices": 3},
    "fixed-2": {**SHORT, "entry": "train:Fixed", "world": 2, "samples": 123, "epochs": 1},
    "lone": {**SHORT, "entry": "train:Normed", "world": 2, "samples": 121},
    "few": {**SHORT, "entry": "train:Normed", "world": 2, "batch_size": 3},
    "raises": {"world": 2, "entry": "train:Raises"},
    "keras3": {"world": 1, "entry": "train:Keras3"},
    "unmonitored": {"world": 1, "monitor": "val_acuracy"},
    "alone": {"world": 2, "strategy": "mirrored"},
}
FAIL = ("lone", "few", "raises", "keras3", "unmonitored", "alone", "differing")


@pytest.fixture(scope="module")
def cases(start: Start) -> dict[str, Case]:
    found = start({name: {"engine": "keras", **case} for name, case in CASES.items()})
    for name, case in found.items():
        assert name in FAIL or set(case.codes) == {0}, (
            f"{name}: {[case.log(rank) for rank in range(case.worlds[-1])]}"
        )
    return found


def assert_equal(one: Any, other: Any, place: str = "") -> None:
    """To the last bit, whatever is in it."""
    assert type(one) is type(other), place
    if isinstance(one, np.ndarray):
        assert one.dtype == other.dtype and one.tobytes() == other.tobytes(), place
    elif isinstance(one, dict):
        assert one.keys() == other.keys(), place
        for key in one:
            assert_equal(one[key], other[key], f"{place}.{key}")
    elif isinstance(one, list):
        for index, pair in enumerate(zip(one, other, strict=True)):
            assert_equal(*pair, f"{place}.{index}")
    else:
        assert one == other, place


def furthest(one: Case, other: Case) -> float:
    """The largest difference between two weights."""
    pairs = zip(one.state()["model"], other.state()["model"], strict=True)
    return max(float(np.abs(mine - theirs).max()) for mine, theirs in pairs)


def steps_of(case: Case) -> list[list[int]]:
    """The samples of each step, over all ranks, in the order of the ranks."""
    return [list(chain(*pieces)) for pieces in zip(*case.traced("ids"), strict=True)]


def test_the_same_global_batches_on_any_number_of_workers(cases: dict[str, Case]) -> None:
    steps = steps_of(cases["plain-1"])
    assert [len(step) for step in steps] == [40, 40, 40, 40, 37] * 4
    assert sorted(chain(*steps[:5])) == list(range(197)), "an epoch has every sample once"
    assert steps[:5] != steps[5:10], "the next epoch has another order"
    assert steps_of(cases["plain-2"]) == steps
    assert steps_of(cases["plain-3"]) == steps


def test_two_devices_of_one_rank_share_the_batches(cases: dict[str, Case]) -> None:
    (seen,) = cases["mirrored-1"].traced("ids")
    pairs = [sorted(seen[index] + seen[index + 1]) for index in range(0, len(seen), 2)]
    assert pairs == [sorted(step) for step in steps_of(cases["plain-1"])]


@pytest.mark.parametrize("name", ["plain-2", "plain-3", "mirrored-1"])
def test_weights_agree_after_twenty_steps(cases: dict[str, Case], name: str) -> None:
    assert cases["plain-1"].end["metrics"]["step"] == 20
    assert furthest(cases["plain-1"], cases[name]) < 1e-5
    for mine, theirs in zip(
        cases["plain-1"].attempt.metrics(), cases[name].attempt.metrics(), strict=True
    ):
        assert mine["train_loss"] == pytest.approx(theirs["train_loss"], abs=1e-5)


@pytest.mark.parametrize("name", ["plain-2", "plain-3", "whole-2"])
def test_all_workers_hold_equal_weights_in_every_step(cases: dict[str, Case], name: str) -> None:
    first, *others = cases[name].traced("weights")
    assert len(set(first)) == 20
    assert all(other == first for other in others)
    # the weights after the last step are among these alone
    last, *those = cases[name].traced("validated")
    assert len(set(last)) == 4 and last[-1] not in first
    assert all(list(dict.fromkeys(other)) == list(dict.fromkeys(last)) for other in those)


def test_both_devices_hold_equal_weights_in_every_step(cases: dict[str, Case]) -> None:
    (sums,) = cases["mirrored-1"].traced("weights")
    assert len(sums) == 40 and sums[::2] == sums[1::2] and len(set(sums)) == 20


@pytest.mark.parametrize("name", ["plain-2", "plain-3", "mirrored-1"])
def test_validation_counts_each_sample_once(cases: dict[str, Case], name: str) -> None:
    first, there = cases["plain-1"].epochs()[0], cases[name].epochs()[0]
    assert first["val_accuracy"] == there["val_accuracy"]
    assert first["val_accuracy"] * 50 == pytest.approx(round(first["val_accuracy"] * 50), abs=1e-5)
    assert first["val_loss"] == pytest.approx(there["val_loss"], abs=1e-6)


def test_two_devices_and_two_workers_average_the_same_statistics(cases: dict[str, Case]) -> None:
    pairs = zip(cases["normed-2"].epochs(), cases["normed-mirrored"].epochs(), strict=True)
    for workers, devices in pairs:
        assert workers["val_loss"] == pytest.approx(devices["val_loss"], abs=1e-5)


def test_data_may_differ_in_its_last_bits(cases: dict[str, Case]) -> None:
    assert cases["rounded"].codes == [0, 0], cases["rounded"].log(0)


def test_a_random_split_is_the_same_on_every_rank_and_after_a_resume(
    cases: dict[str, Case],
) -> None:
    case = cases["shuffled-2"]
    assert case.attempt.resume_step() == 2
    seen = list(chain(*chain(*case.traced("ids"))))
    assert len(seen) == len(set(seen)) == 98, "half of them, each once"
    assert sorted(seen) != list(range(98))


def test_a_batch_smaller_than_the_world(cases: dict[str, Case]) -> None:
    steps = cases["tiny-3"].traced("ids")
    assert sorted(chain(*(step[0] for step in steps), steps[0][1])) == list(range(41))
    assert cases["tiny-3"].end["metrics"]["val_loss"] is not None, "no mean of nothing"


@pytest.mark.parametrize("name", ["short-1", "short-3", "short-mirrored"])
def test_no_replica_normalises_over_one_sample(cases: dict[str, Case], name: str) -> None:
    ranks = cases[name].traced("ids")
    assert min(map(len, chain(*ranks))) > 1
    seen = set(chain(*chain(*ranks)))
    assert seen == set(range(124)), "an epoch has every sample"


def test_a_short_batch_goes_to_fewer_workers(cases: dict[str, Case]) -> None:
    (whole,) = cases["short-1"].traced("ids")
    for epoch in (0, 1):
        first, second, idle = (rank[4 * epoch + 3] for rank in cases["short-3"].traced("ids"))
        assert [*first, *second] == whole[4 * epoch + 3]
        assert idle == first, "with no weight"


def test_a_layer_that_does_not_normalise_over_the_batch_changes_nothing(
    cases: dict[str, Case],
) -> None:
    assert [len(step) for step in cases["fixed-2"].traced("ids")[1]] == [20, 20, 20, 1]


def test_resumed_at_a_short_batch_it_is_equal_bit_for_bit(cases: dict[str, Case]) -> None:
    whole, parts = cases["short-3"], cases["short-stopped-3"]
    assert parts.attempt.resume_step() == 3
    assert_equal(whole.state(), parts.state())
    assert whole.rows_without_times() == parts.rows_without_times()


@pytest.mark.parametrize(
    "name",
    [
        "stopped-1",
        "stopped-2",
        "stopped-mirrored",
        "torn-1",
        *(name for name in CASES if name.startswith("killed")),
    ],
)
def test_the_end_is_equal_bit_for_bit(cases: dict[str, Case], name: str) -> None:
    parts = cases[name]
    whole = cases["whole-mirrored" if name.endswith("mirrored") else f"whole-{parts.world}"]
    assert parts.end["metrics"]["step"] == 20
    assert_equal(whole.state(), parts.state())
    assert whole.rows_without_times() == parts.rows_without_times()
    assert whole.end["best"] == parts.end["best"]


def test_they_were_really_interrupted(cases: dict[str, Case]) -> None:
    assert [cases["stopped-1"].run.attempt(number).resume_step() for number in (2, 3)] == [7, 10]
    assert cases["stopped-2"].attempt.resume_step() == 13
    assert cases["stopped-mirrored"].attempt.resume_step() == 8
    assert cases["torn-1"].attempt.resume_step() == 6
    assert (
        cases["killed-1"].attempt.resume_step()
        >= cases["killed-1"].run.attempt(2).resume_step()
        >= 6
    )
    for number, step in ((9, 3), (11, 3), (12, 5)):
        assert cases[f"killed-at-{number}"].attempt.resume_step() == step
    assert cases["stopped-1"].run.attempt(1).read_again() == "preempt"
    assert "\nresumed at step 10\n" in "\n" + cases["stopped-1"].log(0)


def test_another_number_of_workers_goes_on_and_says_that_it_is_not_exact(
    cases: dict[str, Case],
) -> None:
    moved = cases["moved"]
    assert "resumed at step 8; not bit for bit: 2 ranks then, 1 now" in moved.log(0)
    seen = sorted(chain(*chain(*moved.traced("ids"))))
    assert seen == sorted(list(range(197)) * 4), "four epochs, every sample once in each"
    expected = cases["whole-2"].epochs()[-1]["val_loss"]
    assert moved.epochs()[-1]["val_loss"] == pytest.approx(expected, rel=0.5)


def test_what_else_an_exact_resume_needs_to_share(cases: dict[str, Case]) -> None:
    found = cases["plain-1"].attempt.event("start")
    assert found is not None and find_differences(found, found) == []
    other = {**found, "onednn": "0", "inter_threads": 9, "data": "00000000"}
    assert find_differences(other, found) == [
        f"9 operations at the same time then, {found['inter_threads']} now",
        "TF_ENABLE_ONEDNN_OPTS=0 then, 1 now",
        f"data with the checksum 00000000 then, {found['data']} now",
    ]
    assert cases["plain-2"].attempt.event("start")["data"] == found["data"], (
        "the same data on more ranks"
    )


def test_the_logs_hold_only_our_lines(cases: dict[str, Case]) -> None:
    lines = cases["plain-1"].log(0).splitlines() + cases["plain-3"].log(0).splitlines()
    assert [line for line in lines if not line.startswith("epoch=")] == []
    assert cases["plain-3"].log(1) == cases["plain-3"].log(2) == ""


def test_phases_explain_the_time(cases: dict[str, Case]) -> None:
    phases = cases["plain-1"].end["phases"]
    assert phases["other"] < 0.05 * phases["wall"], phases
    assert all(phases[name] > 0 for name in ("start", "data", "compute", "evaluation", "saving"))


def test_a_rank_that_raises_tells_its_cause(cases: dict[str, Case]) -> None:
    case = cases["raises"]
    assert 0 not in case.codes
    assert "ValueError: as planned" in case.log(1) and "Traceback" in case.log(1)
    errors = [json.loads(case.attempt.error_file(rank).read_text())["message"] for rank in (0, 1)]
    assert errors[0] == "rank 0 lost contact with another rank" and "as planned" in errors[1]


@pytest.mark.parametrize(
    ("name", "message", "hint"),
    [
        ("keras3", "made a model of Keras 3", "import tf_keras as keras"),
        (
            "lone",
            "the last batch of an epoch has one sample (121 samples, batch_size=40), and layer",
            "batch_size=41, or train on 120 samples",
        ),
        (
            "few",
            "batch_size=3 on 2 ranks leaves one sample in a piece, and layer batch_normalization",
            "batch_size=4, or fewer ranks",
        ),
        ("unmonitored", "monitor=val_acuracy is not a metric", "did you mean val_accuracy?"),
        (
            "differing",
            "rank 1 has different data from rank 0: [100, 0] samples",
            "load the same on every rank",
        ),
        (
            "alone",
            "strategy=mirrored trains in one process, and this run has 2 ranks",
            "strategy=multiworker",
        ),
    ],
)
def test_mistakes_are_one_line_and_a_hint(
    cases: dict[str, Case], name: str, message: str, hint: str
) -> None:
    case = cases[name]
    assert set(case.codes) == {1}
    line, second = [line for line in case.log(0).splitlines() if line][:2]
    assert line.startswith("error: ") and message in line
    assert second.startswith("hint: ") and hint in second
    assert "Traceback" not in case.log(0)
