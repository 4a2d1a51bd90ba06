"""A point of a study belongs to one run, whatever became of the lock of the study."""

import shutil
import time
from pathlib import Path
from typing import cast

import pytest

from rampup.errors import Refused
from rampup.rundir import records, submissions
from rampup.rundir.files import RunDir, hidden_directory
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
    submissions.claim_first(hidden)
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


def test_a_run_that_was_removed_or_never_finished_frees_its_point(tmp_path: Path) -> None:
    study = Study("it", tmp_path)
    first, second, third = (begin(tmp_path, name) for name in ("aaaaaa", "bbbbbb", "cccccc"))
    claim_point(study, POINT, first)
    show(first)
    shutil.rmtree(first.path)
    claim_point(study, POINT, second)
    killed = {"t": time.time(), "host": "x", "boot": "b", "pid": 1, "pid_start": 1}
    hidden = RunDir(hidden_directory(second.path))
    records.write_json(submissions.claim_file(hidden, 1), {**killed, "host": None})
    claim_point(study, POINT, third)
