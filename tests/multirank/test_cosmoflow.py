"""CosmoFlow on one and several ranks: the same training from numbers of samples that do not divide,
equal bit for bit when it is resumed, and a log that MLPerf's checker accepts.

The defects of the reference, as its users meet them, and what fails here if we had them: the rate
that is given is overwritten (the_rate_follows_the_epochs); every rank logs, and the seed is an
interval (every_key_is_there_once); a missed target is a success (a_missed_target); a resumed run
begins the data again, and a checkpoint that exists is trusted (resumed_in_the_middle, and torn-1 in
test_keras.py for any recipe); the configuration is pickled (nothing_is_pickled). A tracker that is
imported and drops that are not logged: tests/unit/recipes.
"""

import shutil
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cosmoflow_sets import SCALE, SIZE, make_even_set
from mlperf_checker import accepts, read_lines, values

from rampup.config.recipes import load
from rampup.datasets.cosmoflow.universe import make_sample

from .conftest import Case, Start
from .test_keras import furthest

pytestmark = pytest.mark.skipif(
    find_spec("tf_keras") is None, reason="it needs pip install 'rampup[keras]'"
)

TRAIN, VALIDATION = 11, 7
STEPS = 3
"""In an epoch of 11 samples in batches of 4."""
EPOCHS = 5
SMALL: dict[str, Any] = {
    "epochs": EPOCHS,
    "momentum": 0.5,
    "batch_size": 4,
    "eval_batch_size": 2,
    "log_every": 1,
    "lr": 5e-2,
    "conv_size": 4,
    "n_conv_layers": 2,
    "fc1_size": 8,
    "fc2_size": 8,
    "optimizer": "sgd",
    "schedule": "constant",
    "ends": [],
    "how": "stop",
}
PLAIN = {"augment": False, "dropout": 0.0}
DRAWN = {"augment": True, "dropout": 0.1, "entry": "universe:Stopping"}
BY_EPOCHS: dict[str, Any] = {
    "schedule": "epochs",
    "lr_scaling": "linear",
    "base_batch_size": 1,
    "warmup_epochs": 1,
    "drops": [[2, 0.5]],
    "lr": 1e-3,
}
CASES: dict[str, dict[str, Any]] = {
    **{f"plain-{ranks}": {**PLAIN, "world": ranks} for ranks in (1, 2, 3)},
    "scaled-2": {**PLAIN, **BY_EPOCHS, "world": 2},
    "whole-1": {**DRAWN, "world": 1},
    "stopped-1": {**DRAWN, "world": 1, "attempts": (1, 1, 1), "ends": [4, 2]},
    "killed-1": {
        **DRAWN,
        "world": 1,
        "attempts": (1, 1),
        "ends": [6],
        "how": "kill",
        "every": "2steps",
    },
    "damaged-2": {**PLAIN, "world": 2, "data": "damaged"},
    "still-2": {**PLAIN, "world": 2, "lr": 0.0, "patience": 1, "epochs": 9},
}


@pytest.fixture(scope="module")
def cases(start: Start, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Case]:
    root = tmp_path_factory.mktemp("universes")
    make_even_set(root / "sound", TRAIN, VALIDATION)
    shutil.copytree(root / "sound", root / "damaged")
    file = root / "damaged" / "train" / "universe_4.tfrecord"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    defaults = {name: it.default for name, it in load("cosmoflow", root).settings.items()}
    wanted = {}
    for name, case in CASES.items():
        data = str(root / case.get("data", "sound"))
        entry = case.get("entry", "universe:Stopping")
        wanted[name] = {**defaults, "engine": "keras", **SMALL, **case, "data": data}
        wanted[name]["entry"] = entry
    found = start(wanted)
    for name, case in found.items():
        logs = [case.log(rank) for rank in range(case.worlds[-1])]
        assert name == "damaged-2" or set(case.codes) == {0}, f"{name}: {logs}"
    return found


@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_agree_although_nothing_divides(cases: dict[str, Case], ranks: int) -> None:
    one, several = cases["plain-1"], cases[f"plain-{ranks}"]
    assert several.end["metrics"]["step"] == EPOCHS * STEPS
    assert furthest(one, several) < 1e-5
    for mine, theirs in zip(one.epochs(), several.epochs(), strict=True):
        for name in ("val_loss", "val_mae", "val_mae_omega_m", "val_mae_h_0"):
            assert mine[name] == pytest.approx(theirs[name], abs=1e-6)


def test_the_error_is_the_mean_over_the_parameters(cases: dict[str, Case]) -> None:
    for row in cases["plain-2"].epochs():
        parts = [row[f"val_mae_{name}"] for name in ("omega_m", "sigma_8", "n_s", "h_0")]
        assert row["val_mae"] == pytest.approx(np.mean(parts), rel=1e-5)


def test_the_rate_follows_the_epochs_and_the_batch(cases: dict[str, Case]) -> None:
    """The rate that was given is the one that counts: the reference's --lr has no effect."""
    rates = [1e-3, 4e-3, 2e-3, 2e-3, 2e-3]
    assert [row["lr"] for row in cases["scaled-2"].epochs()] == pytest.approx(rates)
    log = cases["scaled-2"].attempt.mlperf_file.read_text()
    assert values(log, "opt_base_learning_rate") == [pytest.approx(4e-3)]
    assert values(log, "opt_learning_rate_warmup_factor") == [4.0]


@pytest.mark.parametrize("name", ["stopped-1", "killed-1"])
def test_resumed_in_the_middle_of_an_epoch_it_is_equal(cases: dict[str, Case], name: str) -> None:
    whole, parts = cases["whole-1"], cases[name]
    resumed = [
        parts.run.attempt(number).resume_step() for number in range(2, len(parts.worlds) + 1)
    ]
    assert any(step % STEPS for step in resumed), "none was in the middle of an epoch"
    pairs = zip(whole.state()["model"], parts.state()["model"], strict=True)
    assert all(np.array_equal(mine, theirs) for mine, theirs in pairs)
    assert whole.rows_without_times() == parts.rows_without_times()


def test_what_is_drawn_differs_between_steps(cases: dict[str, Case]) -> None:
    assert cases["whole-1"].rows_without_times() != cases["plain-1"].rows_without_times()


def test_a_damaged_record_is_named_and_all_ranks_end(cases: dict[str, Case]) -> None:
    failed = cases["damaged-2"]
    assert all(code != 0 for code in failed.codes)
    named = [error["message"] for error in failed.attempt.errors()]
    assert any("universe_4.tfrecord" in message for message in named), named


def test_patience_ends_all_ranks_together(cases: dict[str, Case]) -> None:
    still = cases["still-2"]
    assert still.end["metrics"]["step"] == 2 * STEPS
    assert "stopped early: val_mae has not improved since epoch 1" in still.log(0)
    assert "stopped early" not in still.log(1)


# the log ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["plain-1", "plain-2", "stopped-1", "killed-1"])
def test_the_official_checker_accepts_the_log(
    cases: dict[str, Case], name: str, tmp_path: Path
) -> None:
    log = cases[name].attempt.mlperf_file.read_text()
    assert accepts(log, tmp_path)
    assert values(log, "number_of_ranks") == [cases[name].worlds[-1]]
    found = [(line["key"], line["metadata"].get("epoch_num")) for line in read_lines(log)]
    for epoch in range(1, EPOCHS + 1):
        for key in ("epoch_start", "eval_start", "eval_stop", "epoch_stop", "eval_error"):
            assert found.count((key, epoch)) == 1
    times = [line["time_ms"] for line in read_lines(log)]
    assert all(one <= next_ for one, next_ in pairwise(times))


def test_every_key_is_there_once_also_from_two_ranks(cases: dict[str, Case]) -> None:
    """The reference logs weight decay and dropout from every rank, and the seed as an interval."""
    lines = read_lines(cases["plain-2"].attempt.mlperf_file.read_text())
    for key in ("seed", "dropout", "opt_weight_decay", "opt_name", "train_samples", "run_stop"):
        (line,) = [line for line in lines if line["key"] == key]
        assert line["event_type"] == ("INTERVAL_END" if key == "run_stop" else "POINT_IN_TIME")


def test_a_missed_target_is_no_success(cases: dict[str, Case]) -> None:
    assert cases["still-2"].end["metrics"]["val_mae"] > 0.124
    for name, status in (("plain-1", "success"), ("still-2", "aborted")):
        (end,) = [
            line
            for line in read_lines(cases[name].attempt.mlperf_file.read_text())
            if line["key"] == "run_stop"
        ]
        assert end["metadata"]["status"] == status


def test_nothing_is_pickled(cases: dict[str, Case]) -> None:
    names = [path.name for path in cases["plain-1"].run.path.rglob("*")]
    assert names and not [name for name in names if name.endswith((".pkl", ".pickle"))]


# predictions --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["plain-1", "plain-2"])
def test_what_was_predicted_is_kept_beside_what_is_true(cases: dict[str, Case], name: str) -> None:
    found = cases[name].attempt.evaluation()
    assert found["outputs"] == ["omega_m", "sigma_8", "n_s", "h_0"]
    assert (found["step"], found["epoch"]) == (EPOCHS * STEPS, EPOCHS)
    count = VALIDATION if name == "plain-1" else -(-VALIDATION // 2)
    files = [make_sample(2, index, SIZE, SIZE, 64.0).targets for index in range(count)]
    truth, predicted = np.array(found["truth"]), np.array(found["predicted"])
    np.testing.assert_allclose(truth, SCALE * np.array(files).T, atol=1e-5)
    assert truth.shape == predicted.shape
    if name == "plain-1":
        error = cases[name].epochs()[-1]["val_mae"]
        assert np.abs(truth - predicted).mean() == pytest.approx(error, abs=1e-5)
