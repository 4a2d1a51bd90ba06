"""Which run a user means: by id, name or job, and which one is the latest."""

from pathlib import Path

import pytest

from rampup.errors import RunNotFound, UsageError
from rampup.rundir import find
from unit.cli.finished_runs import make_run


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of the user's, with TMPDIR beside it."""
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.delenv("RAMPUP_RUNS", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    return folder


def test_the_latest_is_of_this_directory(here: Path, tmp_path: Path) -> None:
    mine = make_run(here / "runs", "aaaaaa", age_s=600)
    make_run(tmp_path / "other" / "runs", "bbbbbb", age_s=60)
    find.remember_root(tmp_path / "other" / "runs")
    assert find.find(None).id == mine.id
    assert [run.id for run in find.all_runs()] == ["bbbbbb", "aaaaaa"]


def test_a_run_of_this_directory_may_live_elsewhere(here: Path, tmp_path: Path) -> None:
    make_run(here / "runs", "aaaaaa", age_s=600)
    scratch = tmp_path / "scratch"
    make_run(scratch, "bbbbbb", age_s=60, config={"cwd": str(here)})
    make_run(scratch, "cccccc", age_s=30, config={"cwd": str(tmp_path)})
    find.remember_root(scratch)
    assert find.find(None).id == "bbbbbb"


def test_a_temporary_folder_is_not_remembered(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary" / "pytest-of-you" / "runs"
    make_run(temporary, "bbbbbb", config={"cwd": str(here)})
    find.remember_root(temporary)
    assert not find.roots_file().exists()
    find.roots_file().parent.mkdir(parents=True)
    find.roots_file().write_text(f"{temporary}\n")  # as an older rampup did
    assert find.all_runs() == []
    monkeypatch.setenv("RAMPUP_RUNS", str(temporary))  # unless it is asked for
    assert find.find(None).id == "bbbbbb"


def test_a_run_of_the_future_is_not_the_latest(here: Path) -> None:
    make_run(here / "runs", "aaaaaa", age_s=60)
    make_run(here / "runs", "bbbbbb", age_s=-86_400)
    assert find.find(None).id == "aaaaaa"


def test_without_runs_here_the_others_are_pointed_to(here: Path, tmp_path: Path) -> None:
    with pytest.raises(RunNotFound) as none:
        find.find(None)
    assert none.value.hint == "rampup run digits"
    make_run(tmp_path / "other", "bbbbbb")
    find.remember_root(tmp_path / "other")
    with pytest.raises(RunNotFound) as elsewhere:
        find.find(None)
    assert "rampup list" in elsewhere.value.hint


def test_by_job_and_by_name(here: Path) -> None:
    root = here / "runs"
    make_run(root, "aaaaaa", "mnist", 600, attempts=({"job": "41"},))
    newer = make_run(root, "bbbbbb", "mnist", 60, attempts=({"job": "42", "next_job": "43"},))
    newer.record("submitted", job="42", cluster="sandbox")
    tasks = [make_run(root, f"{c}cccc9", "grid", 30, attempts=()) for c in "cd"]
    for number, run in enumerate(tasks):
        run.record("submitted", job=f"50_{number}")
    assert find.find("41").id == "aaaaaa"
    assert find.find("43").id == find.find("42").id == "bbbbbb"
    assert find.find("50_1").id == tasks[1].id
    assert newer.jobs() == ["42", "43"]
    assert find.find_to_read("mnist").id == "bbbbbb", "the newest of that name"
    with pytest.raises(UsageError, match="fits 2 runs") as refused:
        find.find("mnist")  # what changes a run must know which
    assert refused.value.hint == "give the id of one; rampup list mnist shows them"
    with pytest.raises(RunNotFound):
        find.find("51")


def test_jobs_are_in_the_order_of_time(here: Path) -> None:
    run = make_run(here / "runs", "aaaaaa", attempts=({"job": "1", "next_job": "2"}, {"job": "2"}))
    run.record("submitted", job="3")  # resumed, now
    assert run.jobs() == ["1", "2", "3"]
