"""The run directory: atomic making, one story from several attempts, a state that is computed."""

import json
import os
import time
from pathlib import Path

import pytest

from rampup.core import processes
from rampup.errors import Refused, RunNotFound, UsageError
from rampup.rundir import files as rundir
from rampup.rundir import find as runs
from rampup.rundir.files import RunDir
from rampup.rundir.records import write_json
from rampup.runs.state import SILENT_AFTER_S, state_of


def make(root: Path, run_id: str = "abcdef", name: str = "test") -> RunDir:
    created = time.time()
    path = rundir.run_directory(root, name, run_id, created)
    with rundir.create_run(path, {"id": run_id, "created": created}):
        pass
    return RunDir(path)


def test_git_ignores_a_new_directory_of_runs(tmp_path: Path) -> None:
    with rundir.create_run(tmp_path / "runs" / "x", {"id": "x"}):
        pass
    assert (tmp_path / "runs" / ".gitignore").read_text() == "*\n"
    (tmp_path / "mine").mkdir()
    with rundir.create_run(tmp_path / "mine" / "x", {"id": "x"}):
        pass
    assert not (tmp_path / "mine" / ".gitignore").exists(), "a directory of the user's"


@pytest.fixture
def on_disk(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is brought to the disk or renamed, in order."""
    events: list[str] = []
    fsync, rename = os.fsync, Path.rename

    def note_fsync(file: int) -> None:
        events.append(os.readlink(f"/proc/self/fd/{file}"))
        fsync(file)

    def note_rename(path: Path, target: Path) -> Path:
        events.append(f"rename {path}")
        return rename(path, target)

    monkeypatch.setattr(os, "fsync", note_fsync)
    monkeypatch.setattr(Path, "rename", note_rename)
    return events


def test_a_run_that_is_seen_is_on_the_disk(tmp_path: Path, on_disk: list[str]) -> None:
    """After a power cut a listed run must not have an empty folder of code."""
    with rundir.create_run(tmp_path / "x", {"id": "x"}) as made:
        (made.path / "code" / "pkg").mkdir(parents=True)
        (made.path / "code" / "pkg" / "train.py").write_text("print()")
    hidden = str(made.path)
    at = on_disk.index(f"rename {hidden}")
    folders = (hidden, f"{hidden}/code", f"{hidden}/code/pkg")
    files = (f"{hidden}/run.json", f"{hidden}/code/pkg/train.py")
    assert {*folders, *files} <= set(on_disk[:at])
    assert str(tmp_path) in on_disk[at:], "the name of the run too"


def test_a_submission_is_on_the_disk_before_it_counts(tmp_path: Path, on_disk: list[str]) -> None:
    run = make(tmp_path)
    on_disk.clear()
    run.record("submitting", job_name="it-abc234", durable=True)
    assert on_disk == [str(run.control_file), str(run.path)]
    on_disk.clear()
    run.record("submitted", job="7", durable=True)
    assert on_disk == [str(run.control_file)]
    on_disk.clear()
    run.record("cancelled")
    assert on_disk == []


def test_an_error_while_making_leaves_nothing(tmp_path: Path) -> None:
    def fail() -> None:
        with rundir.create_run(tmp_path / "runs" / "x", {"id": "x"}) as made:
            (made.path / "half").touch()
            raise OSError(28, "No space left on device")

    with pytest.raises(Refused, match="No space left"):
        fail()
    assert [path.name for path in (tmp_path / "runs").iterdir()] == [".gitignore"]


def test_an_unwritable_root_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Refused, match="can't make a run directory"):
        make(tmp_path / "file" / "runs")


def test_attempts_are_claimed_once(tmp_path: Path) -> None:
    run = make(tmp_path)
    assert [run.claim_attempt().number for _ in range(3)] == [1, 2, 3]


def test_history_is_cut_where_the_next_attempt_resumed(tmp_path: Path) -> None:
    run = make(tmp_path)
    for number, steps in ((1, (10, 20, 30)), (2, (30, 40))):
        attempt = run.claim_attempt()
        lines = [json.dumps({"step": step, "attempt": number}) for step in steps]
        attempt.metrics_file.write_text("\n".join(lines) + '\n{"step": 5')  # and a torn last line
    run.attempt(2).events_file.write_text('{"what": "resumed", "step": 20}\n')
    assert [(row["step"], row["attempt"]) for row in run.history()] == [
        (10, 1),
        (20, 1),
        (30, 2),
        (40, 2),
    ]
    assert run.attempt(2).last_metrics() == {"step": 40, "attempt": 2}


def test_the_state_follows_the_launcher(tmp_path: Path) -> None:
    run = make(tmp_path)
    assert state_of(run).name == "pending"
    write_json(run.run_file, {"created": time.time() - 60})
    assert (state_of(run).name, "never started" in state_of(run).cause) == ("failed", True)
    run.record("submitted", **processes.identify(os.getpid()))
    assert state_of(run).name == "pending"
    attempt = run.claim_attempt()
    alive = {"started": time.time(), **processes.identify(os.getpid())}
    write_json(attempt.facts_file, alive)
    assert state_of(run).name == "running"
    # another process has the pid now
    write_json(attempt.facts_file, {**alive, "pid_start": alive["pid_start"] - 1})
    assert state_of(run).name == "failed"
    write_json(attempt.facts_file, {**alive, "boot": "before the reboot"})
    assert state_of(run).name == "failed"
    write_json(attempt.facts_file, {**alive, "outcome": "timeout", "exit_code": 143})
    assert (state_of(run).name, state_of(run).ended) == ("timeout", True)


def test_a_run_of_another_machine_lives_while_it_writes(tmp_path: Path) -> None:
    run = make(tmp_path)
    attempt = run.claim_attempt()
    write_json(attempt.facts_file, {"host": "elsewhere", "boot": "x", "pid": 1, "pid_start": 1})
    assert state_of(run).name == "running"
    old = time.time() - 2 * SILENT_AFTER_S
    os.utime(attempt.facts_file, (old, old))
    assert state_of(run).name == "failed"


def test_runs_are_found_by_prefix_name_and_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAMPUP_RUNS", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with pytest.raises(RunNotFound, match="no runs yet"):
        runs.find(None)
    one, two = make(tmp_path, "abcdef"), make(tmp_path, "abxyzw", "other-name")
    (tmp_path / "not-a-run").mkdir()
    (tmp_path / ".hidden-20260101-000000-x-aaaaaa.making").mkdir()
    assert len(runs.all_runs()) == 2
    assert runs.find("abc").path == one.path
    assert runs.find(two.path.name).path == two.path
    assert runs.find(str(two.path)).path == two.path
    with pytest.raises(UsageError, match="fits 2 runs"):
        runs.find("ab")
    with pytest.raises(RunNotFound):
        runs.find("zzz")
    with pytest.raises(RunNotFound, match=r"run\.json"):
        runs.find(str(tmp_path))


def test_ids_are_never_job_numbers() -> None:
    ids = {runs.new_run_id() for _ in range(500)}
    assert len(ids) == 500
    assert all(run_id[0].isalpha() and len(run_id) == runs.ID_LENGTH for run_id in ids)
