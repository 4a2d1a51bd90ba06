"""Started again by the job script: after a wish, a time limit, a preemption; never twice, never in
circles."""

import json
from pathlib import Path
from typing import Any

import pytest

from rampup.rundir.files import RunDir

from .conftest import Sandbox, started

ASKS_TWICE = 'sleep 0.$RANK; [ "$RAMPUP_ATTEMPT" -gt 2 ] || exit 85'
"""The ranks end at different times: the first 85 must not cost the others their save."""
LIVES_ONCE = '[ "$RAMPUP_ATTEMPT" -gt 1 ] && exit 0; trap "exit 3" TERM; echo ready; while :; do sleep 0.1; done'


def ended(sandbox: Sandbox, run: Path, seconds: float = 40) -> dict[str, Any]:
    done = sandbox.call("timeout", str(seconds), "rampup", "wait", str(run), "--json")
    assert done.stdout, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def attempts(run: Path) -> list[dict[str, Any]]:
    return [attempt.facts for attempt in RunDir(run).attempts()]


def running(sandbox: Sandbox, run: Path) -> str:
    """The job's id, when rank 0 of its first attempt listens."""
    log = run / "attempts" / "1" / "rank-0.log"
    sandbox.wait_for(lambda: log.exists() and "ready" in log.read_text(), "rank 0 runs")
    job: str = attempts(run)[0]["job"]
    return job


def stays(sandbox: Sandbox, job: str, state: str) -> None:
    """It ends so: a job that was put back into the queue would be pending."""
    sandbox.wait_for(lambda: sandbox.state(job) == state, f"job {job} is {state}")


def preempt(sandbox: Sandbox) -> None:
    sandbox.sbatch("sleep 0.5", "--partition=urgent", "--nodes=4", "--exclusive")


def test_code_85_starts_a_command_again(sandbox: Sandbox) -> None:
    run = started(
        sandbox, "--nodes", "2", "--tasks-per-node", "2", command=("bash", "-c", ASKS_TWICE)
    )
    assert ended(sandbox, run)["state"] == "completed"
    found = attempts(run)
    assert [facts["outcome"] for facts in found] == ["again", "again", "completed"]
    assert len({facts["job"] for facts in found}) == 1, "requeued under its own id"
    assert found[1]["started"] - found[0]["ended"] < 30, (
        "without the two minutes that Slurm would wait"
    )


def test_where_a_site_refuses_another_job_follows(sandbox: Sandbox) -> None:
    run = started(sandbox, "cluster.requeue=false", command=("bash", "-c", ASKS_TWICE))
    assert ended(sandbox, run)["state"] == "completed"
    found = attempts(run)
    assert [facts["outcome"] for facts in found] == ["again", "again", "completed"]
    assert [facts["next_job"] for facts in found] == [found[1]["job"], found[2]["job"], ""]


def test_the_script_finds_out_that_a_site_refuses(another: Sandbox) -> None:
    """A site may forbid what its profile promises: the job script learns it from scontrol, and the
    run is not lost."""
    another.up("--nodes", "1", "--no-accounting", "--no-requeue")
    run = started(another, "--slurm", "no-requeue", command=("bash", "-c", ASKS_TWICE))
    assert ended(another, run)["state"] == "completed"
    found = attempts(run)
    assert [facts["outcome"] for facts in found] == ["again", "again", "completed"]
    assert len({facts["job"] for facts in found}) == 3


def test_it_is_not_started_again_for_ever(sandbox: Sandbox) -> None:
    run = started(sandbox, "resources.requeues=1", command=("bash", "-c", "exit 85"))
    found = ended(sandbox, run)
    assert (found["state"], found["attempts"]) == ("timeout", 2)
    assert "resources.requeues" in found["cause"]
    stays(sandbox, attempts(run)[0]["job"], "FAILED")
    assert len(attempts(run)) == 2


@pytest.fixture
def grace_sandbox(another: Sandbox) -> Sandbox:
    another.up("--nodes", "4", "--no-accounting", "--grace-time", "10")
    return another


def check_preemption(sandbox: Sandbox) -> list[dict[str, Any]]:
    run = started(
        sandbox, "--nodes", "2", "--slurm", "exclusive", command=("bash", "-c", LIVES_ONCE)
    )
    running(sandbox, run)
    preempt(sandbox)
    assert ended(sandbox, run)["state"] == "completed"
    found = attempts(run)
    assert [facts["outcome"] for facts in found] == ["again", "completed"]
    assert found[1]["started"] - found[0]["ended"] < 40, (
        "without the two minutes that Slurm would wait"
    )
    return found


def test_a_preempted_run_goes_on(sandbox: Sandbox) -> None:
    assert check_preemption(sandbox)[0]["why"] == "requeued"  # by Slurm itself, at once


def test_a_preempted_run_with_a_grace_goes_on(grace_sandbox: Sandbox) -> None:
    assert check_preemption(grace_sandbox)[0]["why"] == "preempt"  # Slurm would have left it FAILED


def test_a_cancelled_job_stays_cancelled(sandbox: Sandbox) -> None:
    run = started(sandbox, command=("bash", "-c", LIVES_ONCE.replace("exit 3", "exit 0")))
    job = running(sandbox, run)
    sandbox.run("scancel", job)
    assert ended(sandbox, run)["state"] == "cancelled"
    stays(sandbox, job, "CANCELLED")
    assert len(attempts(run)) == 1


def test_resume_leaves_no_second_job_behind(sandbox: Sandbox) -> None:
    """A job of the run that Slurm still has, whatever the files say, would start it a second
    time."""
    run = started(sandbox, command=("bash", "-c", "exit 3"))
    assert ended(sandbox, run)["state"] == "failed"
    sandbox.run("sbatch", "--hold", str(run / "job.sh"))
    sandbox.rampup("resume", str(run), "--json")
    assert ended(sandbox, run)["attempts"] == 2
    waiting = sandbox.run("squeue", "--noheader", f"--name={run.name.split('-', 2)[2]}")
    assert waiting.strip() == ""


def test_a_command_that_ends_with_85_when_it_is_cancelled_stays_cancelled(sandbox: Sandbox) -> None:
    run = started(sandbox, command=("bash", "-c", LIVES_ONCE.replace("exit 3", "exit 85")))
    job = running(sandbox, run)
    sandbox.rampup("cancel", str(run))
    assert ended(sandbox, run)["state"] == "cancelled"
    stays(sandbox, job, "CANCELLED")
    assert len(attempts(run)) == 1
