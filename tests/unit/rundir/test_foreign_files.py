"""What does not belong into a run directory, and what was lost from it: readers go on, and say what
they know."""

import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from rampup.diagnose.why.explain import explain
from rampup.errors import RunNotFound
from rampup.rundir import find as runs
from rampup.rundir.files import RunDir
from rampup.runs.state import state_of

T0 = 1_794_804_968.0
FACTS = {
    "launcher": "spawn",
    "world_size": 1,
    "started": T0,
    "ended": T0 + 60,
    "exit_code": 0,
    "outcome": "completed",
}


def make(root: Path, run_id: str = "aaaaaa") -> RunDir:
    run = RunDir(root / f"20261116-045608-mnist-{run_id}")
    attempt = run.attempt(1)
    attempt.path.mkdir(parents=True)
    run.run_file.write_text(json.dumps({"id": run_id, "name": "mnist", "created": T0}))
    run.config_file.write_text(json.dumps({"kind": "engine", "train": {}, "resources": {}}))
    run.env_file.write_text(json.dumps({"cpus": 2}))
    submitted = {
        "what": "submitted",
        "t": T0,
        "scheduler": "local",
        "host": "x",
        "boot": "b",
        "pid": 7,
        "pid_start": 1,
    }
    run.control_file.write_text(json.dumps(submitted) + "\n")
    os.utime(run.control_file, (T0, T0))
    attempt.facts_file.write_text(json.dumps(FACTS))
    attempt.metrics_file.write_text('{"step": 5, "loss": 0.5, "t": 1794804970}\n')
    attempt.rank_log(0).write_text("all went well\n")
    return run


def tear(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


def test_what_else_lies_in_attempts_is_no_attempt(tmp_path: Path) -> None:
    run = make(tmp_path)
    for name in ("20261116", "²", "٣", "01", "0", "-1", "1e3", "backup", "2 "):
        (run.path / "attempts" / name).mkdir()
    (run.path / "attempts" / "2").write_text("a file")
    assert run.attempt_numbers() == [1]
    os.symlink(run.attempt(1).path, run.attempt(3).path)
    assert run.attempt_numbers() == [1], "a link is not followed"
    assert run.claim_attempt().number == 4, "and its name, and that of the file, are taken"
    run.attempt(1000).path.mkdir()
    assert run.attempt_numbers()[-1] == 1000


@pytest.mark.parametrize("name", ["20261116", "²", "999999"])
def test_a_stray_directory_does_not_stop_the_readers(cli: Any, name: str) -> None:
    run = make(cli.runs)
    (run.path / "attempts" / name).mkdir()
    (row,) = json.loads(cli("list", "--json", timeout=20).stdout)
    assert row["metrics"]["loss"] == 0.5 and row["attempts"] == (2 if name == "999999" else 1)
    assert cli("show", "aaaaaa", timeout=20).stdout.startswith("mnist  aaaaaa")


@pytest.mark.parametrize("lost", [True, False])
def test_a_run_that_was_started_is_not_said_never_to_have_been(tmp_path: Path, lost: bool) -> None:
    run = make(tmp_path)
    tear(run.attempt(1).facts_file)
    if lost:
        run.attempt(1).facts_file.unlink()
    state = state_of(run)
    assert (
        state.name == "failed"
        and "attempts/1/attempt.json, which records how it ended, is torn" in state.cause
    )
    assert "control.jsonl" not in state.cause and not explain(run).known
    tear(run.control_file)
    state = state_of(run)
    assert state.cause.endswith("is torn or missing, and so is control.jsonl"), state
    shutil.rmtree(run.attempt(1).path)
    assert "never started" in state_of(run).cause


def test_an_attempt_without_a_word_that_was_handed_over_is_not_torn(tmp_path: Path) -> None:
    """`resume` has begun: the new launcher counts, not the files of the attempt before."""
    run = make(tmp_path)
    run.attempt(1).facts_file.write_text(json.dumps({**FACTS, "outcome": "failed", "exit_code": 1}))
    run.record(
        "submitted", scheduler="local", host="x", boot="b", pid=8, pid_start=2, t=time.time() - 999
    )
    os.utime(run.control_file, (T0, T0))
    assert state_of(run).cause == "its launcher ended before it could record what it does"


def test_why_names_what_is_torn_and_believes_the_log(cli: Any) -> None:
    run = make(cli.runs)
    tear(run.attempt(1).facts_file)
    tear(run.control_file)
    done = cli("why", "aaaaaa")
    assert done.stdout.startswith(
        "mnist aaaaaa: failed\nnot known: attempts/1/attempt.json, which records how it ended, is torn"
    )
    assert (
        "never started" not in done.stdout
        and "attempts/1/attempt.json: torn or foreign" in done.stderr
    )
    told = cli.json("why", "aaaaaa")
    trace = 'Traceback (most recent call last):\n  File "a.py", line 7, in <module>\n    f()\nValueError: too large\n'
    run.attempt(1).rank_log(0).write_text(trace)
    assert (
        cli("why", "aaaaaa").stdout.splitlines()[1].startswith("rank 0: ValueError: too large")
    ), "the log tells more"
    assert not told["known"] and any(
        words.startswith("control.jsonl: 1 line is torn") for words in told["damage"]
    )


def test_every_reader_takes_a_directory_whose_run_json_is_lost(cli: Any) -> None:
    run = make(cli.cwd / "elsewhere")
    run.run_file.unlink()
    for path in (str(run.path), f"elsewhere/{run.path.name}"):
        assert "completed" in cli("show", path).stdout
        assert cli("logs", path).stdout == "all went well\n"
        assert "\nnothing went wrong" in cli("why", path).stdout
    assert cli.json("show", str(run.path))["attempts"] == 1
    assert "no run" in cli("show", "elsewhere", check=102).stderr, "no run at all"
    assert "no run" in cli("cancel", str(run.path), check=102).stderr, (
        "who acts on a run wants a whole one"
    )


def test_find_to_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make(tmp_path / "there")
    run.run_file.unlink()
    monkeypatch.chdir(tmp_path / "there")
    monkeypatch.setenv("RAMPUP_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert runs.find_to_read(run.path.name).path == run.path
    for wanted in (None, "nowhere", "..", "./nowhere"):
        with pytest.raises(RunNotFound):
            runs.find_to_read(wanted)
