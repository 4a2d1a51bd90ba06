"""One sbatch for many runs: it is not called when any of them belongs to another process by then."""

import os
from contextlib import ExitStack
from pathlib import Path

import pytest

from rampup.errors import Refused
from rampup.rundir import claims, records
from rampup.rundir import files as rundir
from rampup.rundir.files import RunDir
from rampup.study.code import SharedCode
from rampup.study.grid import Point
from rampup.study.launch import Batch, Group, Launch, Way
from rampup.study.members import Member, Study
from unit.job_scripts import make_spec


def make_runs(root: Path) -> list[RunDir]:
    made = [RunDir(root / f"20260101-000000-it-aaa22{number}") for number in range(3)]
    for run in made:
        with rundir.create_run(run.path, {"id": run.id}, alone=False) as hidden:
            claims.claim_first(hidden)
    return made


@pytest.mark.parametrize("at_once", [None, 2])
def test_a_run_that_somebody_else_has_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int | None
) -> None:
    sbatch = tmp_path / "bin" / "sbatch"
    sbatch.parent.mkdir()
    sbatch.write_text(f"#!/bin/sh\necho called >> {tmp_path}/calls\necho 7\n")
    sbatch.chmod(0o755)
    monkeypatch.setenv("PATH", f"{sbatch.parent}:{os.environ['PATH']}")
    runs = make_runs(tmp_path)
    members = [Member(Point({}, make_spec(), run.id)) for run in runs]
    with ExitStack() as undo, SharedCode(tmp_path, "it") as code:
        batch = Batch(Group(members, ()), runs, undo)
        launch = Launch(Study("it", tmp_path), Way(at_once), code, print)
        assert launch.submit(batch) == "7"
        assert [run.jobs() for run in runs] == (
            [["7_0"], ["7_1"], ["7_2"]] if at_once is None else [["7"]] * 3
        )
        other = {**claims.describe_process(), "host": "elsewhere"}
        records.write_json(claims.claim_file(runs[1], 2), other)
        with pytest.raises(Refused, match=f"run {runs[1].id} is being started"):
            launch.submit(batch)
    assert (tmp_path / "calls").read_text() == "called\n"
    assert all(claims.find_open(run.control()) is None for run in runs)
