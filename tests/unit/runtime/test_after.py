"""after.py: what it makes of the directories of the runs that come first."""

import json
from pathlib import Path
from typing import Any

import pytest

from rampup import after
from rampup.rundir.files import RunDir


def make_run(path: Path, *attempts: dict[str, Any], **submitted: Any) -> Path:
    path.mkdir()
    (path / "submissions").mkdir()
    row = {"what": "submitted", "job": "7", "after": 0, **submitted}
    (path / "control.jsonl").write_text(f"{json.dumps(row)}\n")
    for number, facts in enumerate(attempts, start=1):
        folder = path / "attempts" / str(number)
        folder.mkdir(parents=True)
        (folder / "attempt.json").write_text(json.dumps({"job": "7", **facts}))
    return path


def decide(tmp_path: Path, before: Path, queued: tuple[str, ...]) -> tuple[str, str]:
    config = {"after": [{"id": "abc123", "dir": str(before), "job": "7"}]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    return after.decide(str(tmp_path), lambda last: last.get("job") in queued)


@pytest.mark.parametrize(
    ("attempts", "submitted", "queued", "answer"),
    [
        ([{"outcome": "completed"}], {}, ("7",), ("go", "")),
        ([], {}, ("7",), ("wait", "7")),
        ([{}], {}, ("7",), ("wait", "7")),
        ([{"outcome": "again"}], {}, ("7",), ("wait", "7")),
        ([{"outcome": "again", "next_job": "8"}], {}, ("8",), ("wait", "8")),
        ([{"outcome": "failed"}, {"outcome": "completed"}], {}, (), ("go", "")),
        # resumed since, as another job
        ([{"outcome": "failed"}], {"job": "9", "after": 1}, ("9",), ("wait", "9")),
        # one that Slurm put back into the queue by itself
        ([{"outcome": "stopped"}], {}, ("7",), ("wait", "7")),
        (
            [{"outcome": "failed", "cause": "rank 1: ValueError"}],
            {},
            (),
            ("never", "run abc123, which comes before it, ended as failed: rank 1: ValueError"),
        ),
        (
            [{"outcome": "stopped"}],
            {},
            (),
            ("never", "run abc123, which comes before it, was stopped"),
        ),
    ],
)
def test_a_run_waits_goes_or_never_begins(
    tmp_path: Path,
    attempts: list[dict[str, Any]],
    submitted: dict[str, Any],
    queued: tuple[str, ...],
    answer: tuple[str, str],
) -> None:
    before = make_run(tmp_path / "before", *attempts, **submitted)
    assert decide(tmp_path, before, queued) == answer


def test_a_run_that_left_no_record_is_given_some_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(after, "CATCH_UP_S", 0.0)
    before = make_run(tmp_path / "before", {})
    word, cause = decide(tmp_path, before, ())
    assert word == "never" and cause.endswith("has ended without a record of how")


def test_a_job_that_went_behind_another_is_followed_by_readers(tmp_path: Path) -> None:
    before = make_run(tmp_path / "before")
    moves = before / "submissions"
    (moves / "moved-7.json").write_text('{"t": 5.0, "job": "8", "behind": "3"}')
    (moves / "moved-8.json").write_text('{"t": 6.0, "job": "7", "behind": "4"}')  # damaged: a ring
    assert [row["job"] for row in RunDir(before).records("submitted")] == ["7", "8", "7"]
    (moves / "moved-8.json").write_text('{"t": 6.0, "job": 9}')
    assert [row["job"] for row in RunDir(before).records("submitted")] == ["7", "8"]
    assert decide(tmp_path, before, ("8",)) == ("wait", "8")
