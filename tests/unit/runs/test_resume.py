"""A start that another process has taken over: who had it before starts nothing, and changes
nothing back."""

import os
import time
from pathlib import Path

import pytest

from rampup.errors import Refused
from rampup.rundir import claims, records
from rampup.rundir import files as rundir
from rampup.rundir.files import RunDir
from rampup.runs.checkpoints import skip_from
from rampup.runs.resume import rollback_on_error
from rampup.schedulers.held_start import Gate
from rampup.schedulers.local import start_recorded


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    made = RunDir(tmp_path / "20260101-000000-it-abc234")
    with rundir.create_run(made.path, {"id": "abc234"}) as hidden:
        claims.claim_first(hidden)
        records.write_new(hidden.config_file, {"name": "before"})
    return made


def take_over(run: RunDir) -> None:
    """Claim the next start as a process of another host does, and write what it is to do."""
    number = claims.newest_claim(run)[0] + 1
    other = {**claims.describe_process(), "host": "elsewhere"}
    records.write_json(claims.claim_file(run, number), other)
    records.write_json(run.config_file, {"name": "theirs"})


def fail(run: RunDir, is_taken_over: bool) -> None:
    """Write what a next attempt is to do, and fail before it is started."""
    records.write_json(run.config_file, {"name": "mine"})
    if is_taken_over:
        take_over(run)
    raise Refused("too late", "")


def test_what_the_other_one_wrote_stays(run: RunDir) -> None:
    with pytest.raises(Refused, match="too late"), rollback_on_error(run):
        fail(run, is_taken_over=True)
    assert run.config["name"] == "theirs" and run.control() == []


def test_what_was_there_before_comes_back_if_nobody_else_has_it(run: RunDir) -> None:
    with pytest.raises(Refused, match="too late"), rollback_on_error(run):
        fail(run, is_taken_over=False)
    assert run.config["name"] == "before"
    assert (run.recorded("not submitted") or {})["why"] == "too late"


def test_a_checkpoint_that_was_set_aside_stays_aside_for_the_other_one(run: RunDir) -> None:
    for step in (1, 2):
        run.checkpoint(step).mkdir(parents=True)
    with pytest.raises(Refused, match="too late"), skip_from(run, 2):
        fail(run, is_taken_over=True)
    assert sorted(os.listdir(run.checkpoints)) == ["skipped-step-2", "step-1"]


def test_the_first_one_starts_no_process(run: RunDir, tmp_path: Path) -> None:
    take_over(run)
    gate = Gate(["touch", str(tmp_path / "started")], dict(os.environ))
    with pytest.raises(Refused, match="is being started by another process"):
        start_recorded(run, gate, scheduler="local")
    time.sleep(0.1)
    assert run.control() == [] and not (tmp_path / "started").exists()
