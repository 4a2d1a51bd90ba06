"""The parts of the scheduler for Spark that need no Spark: what a failure means, and who may start a
rank."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rampup.errors import Refused
from rampup.rundir.files import RunDir
from rampup.schedulers.spark import driver, task

LOST = (
    "ExecutorLostFailure (executor 1 exited caused by one of the running tasks) Reason: "
    "Command exited with code 137"
)
CRASHED = "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)\n at x"


def message(**facts: Any) -> str:
    """What Spark shows of a task that raised."""
    return f"Traceback ...\nRuntimeError: {task.MARK}{json.dumps(facts)}\n\n\tat org.apache..."


def test_the_rank_that_ended_first_is_to_blame() -> None:
    ended = {0: message(rank=0, code=1, t=20.0), 1: message(rank=1, code=137, t=10.0)}
    found = driver.explain_failures(ended)
    assert (found.name, found.failed_rank, found.exit_code) == ("failed", 1, 137)


def test_a_dead_executor_or_worker_is_named_with_its_rank() -> None:
    found = driver.explain_failures({1: LOST})
    assert found.cause == "rank 1: its executor died: Command exited with code 137"
    found = driver.explain_failures({0: CRASHED})
    assert found.cause == "rank 0: its Python worker died: killed, or out of memory"


def test_a_refusal_comes_with_its_hint() -> None:
    found = driver.explain_failures({0: message(cause="no storage", hint="set RAMPUP_RUNS")})
    assert found.cause == "no storage; set RAMPUP_RUNS"


def test_what_nobody_knows_is_what_spark_says() -> None:
    assert driver.explain_failures({-1: "a task of the stage failed"}).failed_rank is None
    assert "Spark: odd" in driver.explain_failures({1: "odd\nmore"}).cause


@pytest.mark.parametrize(
    ("function", "hint"),
    [(None, "--tasks-per-node 2, or more executors"), ("train", "np=2, or more executors")],
)
def test_too_many_ranks_are_refused_with_the_option_that_was_used(
    function: str | None, hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunDir(tmp_path)
    called = {"name": function} if function else None
    facts = {"resources": {"nodes": 1, "tasks_per_node": 5}, "function": called}
    run.config_file.write_text(json.dumps(facts))
    monkeypatch.setattr(driver, "SLOTS_WITHIN_S", -1.0)
    monkeypatch.setattr(driver.sessions, "count_slots", lambda context: 2)
    conf = SimpleNamespace(get=lambda name, usual: usual)
    context = SimpleNamespace(getConf=lambda: conf)
    with pytest.raises(Refused, match="has 5 ranks, and the executors can run 2 tasks") as caught:
        driver.Driver(run, context).check_context()
    assert caught.value.hint == hint


def test_nobody_gets_a_rank_twice(tmp_path: Path) -> None:
    order = {"attempt_dir": str(tmp_path), "port_retry": 0}
    task.claim(order, 1)
    with pytest.raises(task.RankError, match="rank 1 a second time"):
        task.claim(order, 1)
    task.claim({**order, "port_retry": 1}, 1)


def test_an_executor_without_the_run_says_which_file_it_lacks(tmp_path: Path) -> None:
    order = {"run_dir": str(tmp_path / "absent"), "run_hash": "x", "files_within": 0.0}
    with pytest.raises(task.RankError, match=r"can't read .*run\.json.*RAMPUP_RUNS"):
        task.check_place(order)


def test_an_executor_that_runs_as_somebody_else_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run directory is closed to other users, and root can't play one here."""
    order = {"run_dir": str(tmp_path), "run_hash": "x", "files_within": 0.0}
    monkeypatch.setattr(task.os, "access", lambda path, mode: False)
    with pytest.raises(task.RankError, match="let it run as you"):
        task.check_place(order)
