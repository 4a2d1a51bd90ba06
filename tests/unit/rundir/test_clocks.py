"""Ages are never negative, and what another machine wrote is as old as its file system says."""

import multiprocessing
import os
import time
from pathlib import Path

import pytest

from rampup.rundir import clocks
from rampup.rundir.files import RunDir, create_run, hidden_directory, remove_abandoned
from rampup.runs.state import state_of
from rampup.schedulers.base import Answer


def ahead(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + seconds)


def test_an_answer_from_the_future_is_not_fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a clock that was an hour ahead, `list` believed its cache until the clock caught up."""
    answer = Answer({}, time.time() + 3600)
    assert answer.age_s == 0.0
    assert not answer.is_fresh(2.0) and not answer.is_fresh(0.0)
    assert Answer({}, time.time()).is_fresh(2.0)


def test_a_clock_that_is_ahead_makes_no_file_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file"
    file.touch()
    ahead(monkeypatch, 300)
    assert clocks.age_of_file(file) < 5
    os.utime(file, (time.time(), time.time()))
    assert clocks.age_of_file(file) == 0.0


def test_a_live_run_of_another_host_stays_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader whose clock was five minutes ahead called it failed, and `resume` started it twice."""
    run = RunDir(tmp_path / "20261116-045608-mnist-aaaaaa")
    attempt = run.attempt(1)
    attempt.path.mkdir(parents=True)
    run.run_file.write_text('{"id": "aaaaaa", "name": "mnist"}')
    run.record("submitted", scheduler="local", host="x", boot="b", pid=7, pid_start=1)
    facts = '{"host": "x", "boot": "b", "pid": 7, "pid_start": 1, "started": 5.0}'
    attempt.facts_file.write_text(facts)
    ahead(monkeypatch, 300)
    assert state_of(run).name == "running"
    past = time.time() - 1000
    for path in attempt.path.iterdir():
        os.utime(path, (past, past))
    assert state_of(run).name == "failed"


def test_what_a_killed_process_left_goes_after_a_day(tmp_path: Path) -> None:
    old, new = (hidden_directory(tmp_path / name) for name in ("a-old", "a-new"))
    for folder in (old, new):
        (folder / "code").mkdir(parents=True)
    past = time.time() - 2 * 86_400
    os.utime(old, (past, past))
    remove_abandoned(tmp_path)
    assert not old.exists() and new.exists()


def make_runs(root: Path, process: int) -> None:
    for number in range(60):
        path = root / f"20260101-000000-it-p{process}n{number:03d}"
        with create_run(path, {"id": path.name}):
            pass


def test_many_processes_make_runs_in_one_folder(tmp_path: Path) -> None:
    """Each looks for what killed ones have left, and meets what the others just finish."""
    with multiprocessing.get_context("fork").Pool(4) as pool:
        pool.starmap(make_runs, [(tmp_path, process) for process in range(4)])
    assert len(list(tmp_path.glob("2*"))) == 240
