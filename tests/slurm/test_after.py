"""`rampup run --after RUN` in the queue of a real Slurm."""

import json
from pathlib import Path
from typing import Any

from rampup.rundir.files import RunDir

from .conftest import Sandbox, started

AGAIN = '[ "$RAMPUP_ATTEMPT" = 1 ] && exit 85; echo done'
"""It is put into the queue again, once."""


def wait(sandbox: Sandbox, run: Path) -> dict[str, Any]:
    done = sandbox.call("timeout", "90", "rampup", "wait", str(run), "--json")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_chain_of_three_with_a_requeue_and_a_failure(sandbox: Sandbox) -> None:
    """The second waits for the first across its requeue; the last never begins, because the one
    before it fails. It takes about half a minute: five jobs one after the other, and Slurm lets a
    requeued one wait for some seconds."""
    one = ("--nodes", "1")
    first = started(sandbox, *one, "--name", "first", command=("sh", "-c", AGAIN))
    second = started(sandbox, *one, "--after", first.name[-6:], command=("sh", "-c", "exit 3"))
    third = started(sandbox, *one, "--after", str(second), command=("true",))
    assert "afterany:" in (third / "job.sh").read_text()
    assert wait(sandbox, first)["state"] == "completed"
    assert len(RunDir(first).attempts()) == 2
    assert wait(sandbox, second)["state"] == "failed"
    found = wait(sandbox, third)
    assert found["state"] == "cancelled"
    cause = f"run {second.name[-6:]}, which comes before it, ended as failed"
    assert cause in found["cause"]
    assert not list(third.glob("attempts/*/rank-*.log")), "no rank has begun"
    began = RunDir(second).attempt(1).facts["started"]
    assert began > RunDir(first).attempt(2).facts["ended"]


def test_a_job_goes_behind_the_one_that_took_the_place_of_another(sandbox: Sandbox) -> None:
    """Where a site does not requeue, another job follows: the waiting one goes behind it, and every
    reader follows it there."""
    own = ("cluster.requeue=false", "--nodes", "1")
    gate = sandbox.cwd / "gate"
    held = f'until [ -e "{gate}" ]; do sleep 0.1; done; {AGAIN}'
    first = started(sandbox, *own, command=("sh", "-c", held))
    second = started(sandbox, *own, "--after", str(first), command=("echo", "second"))
    gate.touch()
    assert wait(sandbox, first)["state"] == "completed"
    assert wait(sandbox, second)["state"] == "completed"
    jobs = RunDir(second).jobs()
    assert len(jobs) == 2, "it went behind the new job of the first"
    assert [row["job"] for row in RunDir(second).records("submitted")] == jobs
    assert len(RunDir(second).attempts()) == 1
    began = RunDir(second).attempt(1).facts["started"]
    assert began > RunDir(first).attempt(2).facts["ended"]
