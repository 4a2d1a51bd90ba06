"""A point of a study belongs to one run, whatever became of the lock of the study."""

import os
import shutil
import sys
import time
from pathlib import Path
from typing import cast

import pytest

from rampup.core import processes
from rampup.errors import Refused
from rampup.rundir import claims, records
from rampup.rundir.files import RunDir, hidden_directory
from rampup.study.code import SharedCode
from rampup.study.grid import Point
from rampup.study.members import Study, claim_point


class Named:
    """As much of a point as a claim needs."""

    id = "lr-1"


POINT = cast(Point, Named())


def begin(root: Path, name: str) -> RunDir:
    """A run that is being made: complete, and hidden."""
    run = RunDir(root / f"20261116-045608-it-{name}")
    hidden = RunDir(hidden_directory(run.path))
    hidden.path.mkdir(parents=True)
    claims.claim_first(hidden)
    return run


def show(run: RunDir) -> None:
    hidden_directory(run.path).rename(run.path)


def test_the_second_run_of_a_point_is_refused(tmp_path: Path) -> None:
    study = Study("it", tmp_path)
    first, second = begin(tmp_path, "aaaaaa"), begin(tmp_path, "bbbbbb")
    claim_point(study, POINT, first)
    for _ in range(2):  # while it is being made, and when it is there
        with pytest.raises(Refused, match="is being started by another process"):
            claim_point(study, POINT, second)
        if not first.path.exists():
            show(first)


def test_a_run_that_is_finished_between_two_looks_has_its_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = Study("it", tmp_path)
    first, second = begin(tmp_path, "aaaaaa"), begin(tmp_path, "bbbbbb")
    claim_point(study, POINT, first)
    look = claims.is_being_started

    def finish_and_look(hidden: RunDir) -> bool:
        show(first)
        return look(hidden)

    monkeypatch.setattr(claims, "is_being_started", finish_and_look)
    with pytest.raises(Refused, match="is being started by another process"):
        claim_point(study, POINT, second)


def take(study_root: Path, source: Path, into: Path) -> str:
    """Copy the code as a process that starts the study does; return what another one finds."""
    command = (sys.executable, str(source / "train.py"))
    with SharedCode(study_root, "it") as one, SharedCode(study_root, "it") as other:
        one.take(command, source, into / "one")
        other.take(command, source, into / "other")
        (mine,) = one.taken.values()
        return (mine[0] / "train.py").read_text()


def test_two_sweeps_at_once_do_not_share_a_copy_of_the_code(tmp_path: Path) -> None:
    """Where locks do not work, one would remove the copy from which the other one takes."""
    source, root = tmp_path / "source", tmp_path / "runs"
    source.mkdir()
    root.mkdir()
    (source / "train.py").write_text("print(1)\n")
    dead = root / ".code-it-01234567"
    dead.mkdir()
    records.write_new(dead / "owner.json", {**processes.identify(os.getpid()), "pid_start": 1})
    assert take(root, source, tmp_path) == "print(1)\n"
    assert list(root.iterdir()) == []


def test_a_run_that_was_removed_or_never_finished_frees_its_point(tmp_path: Path) -> None:
    study = Study("it", tmp_path)
    first, second, third = (begin(tmp_path, name) for name in ("aaaaaa", "bbbbbb", "cccccc"))
    claim_point(study, POINT, first)
    show(first)
    shutil.rmtree(first.path)
    claim_point(study, POINT, second)
    killed = {"t": time.time(), "host": "x", "boot": "b", "pid": 1, "pid_start": 1}
    hidden = RunDir(hidden_directory(second.path))
    records.write_json(claims.claim_file(hidden, 1), {**killed, "host": None})
    claim_point(study, POINT, third)
