"""Cancelling a study whose runs share jobs of Slurm, while a sweep still starts some of them."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rampup.core import processes
from rampup.errors import SchedulerError
from rampup.rundir import records
from rampup.rundir.files import RunDir
from rampup.runs import places
from rampup.runs import state as states
from rampup.runs import submissions as lost_submissions
from rampup.study import stop
from rampup.study.members import Study
from unit.study.test_states import SITE, make, submitted


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Slurm in which the pack waits; the file has the calls of scancel."""
    folder, calls = tmp_path / "bin", tmp_path / "calls"
    folder.mkdir()
    calls.touch()
    for name, text in {
        "squeue": 'echo "7|PENDING|JobHeldUser|N/A||it-pack1"',
        "sacct": "exit 0",
        "scancel": f'echo "$*" >> {calls}; exit "${{SCANCEL_CODE:-0}}"',
    }.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for module in (places, lost_submissions, stop):
        monkeypatch.setattr(module, "of_run", lambda name, kept, *more: SITE)
    return calls


@pytest.fixture
def pack(tmp_path: Path, slurm: Path) -> list[RunDir]:
    """Two runs of a study that wait in one job."""
    found = [make(tmp_path / "runs", run_id) for run_id in ("abc234", "bcd234")]
    for run in found:
        run.config_file.write_text("{}")
        submitted(run, packed=True)
    return found


@pytest.fixture
def sweep() -> Iterator[subprocess.Popen[bytes]]:
    """A process that is about to start runs of a study."""
    code = "import time; time.sleep(60)"
    process = subprocess.Popen([sys.executable, "-c", code, "rampup", "sweep"])
    yield process
    process.kill()
    process.wait()


def test_the_job_of_a_pack_is_cancelled_beside_a_sweep(
    pack: list[RunDir], slurm: Path, sweep: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its runs were recorded as cancelled because of the sweep, so nobody asked for their job any
    more: it stayed in the queue, and the next sweep submitted a second one."""
    study = Study("it", pack[0].path.parent)
    study.folder.mkdir(parents=True)
    records.write_json(study.mark, processes.identify(sweep.pid))
    # the process is our child: once it has ended it is a zombie, as it never is for `cancel`
    monkeypatch.setattr(stop.processes, "is_alive", lambda who: sweep.poll() is None)
    stop.stop_starting(study)
    assert sweep.wait(timeout=10) == -signal.SIGTERM
    left = [run for run in study.runs() if not states.state_of(run, 0.0).ended]
    assert {run.path for run in left} == {run.path for run in pack}
    stop.cancel_all(left)
    assert slurm.read_text() == "--name=it-pack1 7\n"
    assert all(run.is_cancelled() for run in pack)


def test_a_run_that_waits_here_is_cancelled_with_its_sweep(
    tmp_path: Path, sweep: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make(tmp_path / "runs")
    run.record("submitted", scheduler="local", waits=True, **processes.identify(sweep.pid))
    study = Study("it", tmp_path / "runs")
    study.folder.mkdir(parents=True)
    records.write_json(study.mark, processes.identify(sweep.pid))
    monkeypatch.setattr(stop.processes, "is_alive", lambda who: sweep.poll() is None)
    stop.stop_starting(study)
    assert run.is_cancelled()


def test_no_run_is_cancelled_whose_job_is_not(
    pack: list[RunDir], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever is killed between the two leaves no job behind that nobody asks for."""
    monkeypatch.setenv("SCANCEL_CODE", "1")
    with pytest.raises(SchedulerError, match="scancel failed"):
        stop.cancel_all(pack)
    assert not any(run.is_cancelled() for run in pack)
