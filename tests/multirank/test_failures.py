"""What goes wrong on the job side is said once and clearly, and what was written before stays
readable."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from .conftest import HERE, Case, Start
from .ranks import free_port, variables

CASES: dict[str, dict[str, Any]] = {
    "metrics-full": {"world": 1, "limit": 6000, "trace": False, "every": "never", "epochs": 100},
    "checkpoint-full": {"world": 2, "limit": 4000, "trace": False, "epochs": 1},
    "vanished": {"world": 1, "entry": "train:Vanishes"},
    "raises": {"world": 2, "entry": "train:Raises"},
    "stopped": {"world": 1, "entry": "train:Stopped", "epochs": 1000},
    "ghost": {"world": 2, "entry": "train:Ghost", "every": "3steps", "epochs": 100},
    "endless": {"world": 1, "entry": "train:Endless", "monitor": "train_loss", "epochs": 1},
    "wordless": {"world": 1, "entry": "train:Wordless"},
    "misspelled": {"world": 1, "entry": "train:Tracd"},
    "unmonitored": {"world": 2, "monitor": "val_acuracy"},
    "half": {"world": 1, "precision": "fp16"},
}


@pytest.fixture(scope="module")
def cases(start: Start) -> dict[str, Case]:
    return start(CASES)


def error_of(case: Case, rank: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(case.attempt.error_file(rank).read_text())
    return found


def test_disk_full_in_metrics(cases: dict[str, Case]) -> None:
    case = cases["metrics-full"]
    assert case.codes == [74]
    assert f"error: can't write {case.attempt.metrics_file}: File too large" in case.log(0)
    assert "hint: check free space and quota with: df -h" in case.log(0)
    assert "Traceback" not in case.log(0)
    steps = [row["step"] for row in case.attempt.metrics() if "samples_s" not in row]
    assert len(steps) > 20 and steps == list(range(1, len(steps) + 1))
    assert error_of(case)["type"] == "StorageError"


def test_disk_full_in_a_checkpoint(cases: dict[str, Case]) -> None:
    case = cases["checkpoint-full"]
    assert case.codes[0] == 74 and case.codes[1] == 1
    assert f"can't write {case.run.checkpoint(5)}: File too large" in case.log(0)
    assert "rank 1 lost contact with another rank" in case.log(1) and "Traceback" not in case.log(1)
    assert list(case.run.checkpoints.iterdir()) == []
    assert len(case.epochs()) == 1


def test_vanished_metrics(cases: dict[str, Case]) -> None:
    assert cases["vanished"].codes == [74]
    assert "removed while the run was writing it" in cases["vanished"].log(0)


def test_a_rank_that_raises(cases: dict[str, Case]) -> None:
    case = cases["raises"]
    assert case.codes == [1, 1]
    assert "ValueError: as planned" in case.log(1) and "Traceback" in case.log(1)
    error = error_of(case, 1)
    assert (error["rank"], error["type"], error["message"]) == (1, "ValueError", "as planned")
    assert "train.py" in error["traceback"]
    assert case.attempt.errors()[0]["rank"] == 1, "the first failure is the cause"
    assert case.attempt.event("end") is None


def test_a_signal_ends_it_in_good_order(cases: dict[str, Case]) -> None:
    case = cases["stopped"]
    assert case.codes == [0] and case.attempt.read_again() == "preempt"
    assert [row["step"] for row in case.attempt.metrics()] == [1, 2, 3, 4]
    assert [path.name for path in case.run.checkpoints.iterdir()] == ["step-4"]
    assert case.attempt.event("end") is None and not case.attempt.error_file(0).exists()


def test_a_ghost_leaves_the_run_alone(cases: dict[str, Case]) -> None:
    case = cases["ghost"]
    assert "attempt 2 of this run has begun: attempt 1 stops writing" in case.log(0)
    assert sorted(path.name for path in case.run.checkpoints.iterdir()) == ["step-5", "step-6"], (
        "the best and the newest"
    )
    assert case.attempt.event("end") is None


def test_a_loss_that_is_no_number(cases: dict[str, Case]) -> None:
    case = cases["endless"]
    assert case.codes == [0]
    rows = [
        json.loads(line, parse_constant=pytest.fail)
        for line in case.attempt.metrics_file.read_text().splitlines()
    ]
    assert rows[0]["train_loss"] is None
    assert case.log(0).count("warning: train_loss is inf at step 1") == 1
    assert "train_loss=inf" in case.log(0) or "train_loss=nan" in case.log(0)


@pytest.mark.parametrize(
    ("name", "message", "hint"),
    [
        ("wordless", "evaluate() of Wordless returned float", "sums over the samples"),
        ("misspelled", "train.py has no 'Tracd'", "did you mean Traced?"),
        ("unmonitored", "monitor=val_acuracy is not a metric", "did you mean val_accuracy?"),
        ("half", "precision=fp16 does not train on a CPU", "precision=fp32"),
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
    assert "Traceback" in error_of(case)["traceback"]


def test_disk_full_in_the_log_of_a_real_process(tmp_path: Path) -> None:
    case = Case(tmp_path / "run", world=1, epochs=1, every="never")
    case.write()
    log = case.attempt.rank_log(0)
    log.write_text("x" * 10230)  # ten bytes below the limit
    limited = [
        "bash",
        "-c",
        'ulimit -f 10; exec "$0" -m rampup.worker "$1"',
        sys.executable,
        str(case.run.path),
    ]
    env = {
        **os.environ,
        **variables(str(case.run.path), 0, 1, free_port()),
        "PYTHONPATH": str(HERE.parents[1]),
    }
    with open(log, "a") as file:
        done = subprocess.run(limited, env=env, stdout=file, stderr=file, timeout=60)
    assert done.returncode == 74
    assert "can't write the log of this rank: File too large" in error_of(case)["message"]
    assert len(case.epochs()) == 1


def test_two_real_processes(tmp_path: Path) -> None:
    case, port = Case(tmp_path / "run", world=2), free_port()
    case.write()
    argv = [sys.executable, "-m", "rampup.worker", str(case.run.path)]
    env = {**os.environ, "PYTHONPATH": str(HERE.parents[1])}
    ranks = [
        subprocess.Popen(argv, env=env | variables(str(case.run.path), rank, 2, port))
        for rank in (0, 1)
    ]
    assert [rank.wait(timeout=60) for rank in ranks] == [0, 0]
    assert case.end["metrics"]["step"] == 20
