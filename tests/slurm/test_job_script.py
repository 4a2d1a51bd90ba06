"""The job script on a real Slurm: how it ends, how it begins again, by hand and inside an
allocation."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

SAVES_AT_THE_END = """
import os, signal, time
def save(number, frame):
    time.sleep(1.0)
    print("saved", flush=True)
    os._exit(0)
signal.signal(signal.SIGTERM, save)
print("begun", flush=True)
time.sleep(60)
"""

SLEEPS_THE_SECOND_TIME = """
import os, time
print("begun", flush=True)
time.sleep(60 if os.environ["RAMPUP_ATTEMPT"] == "2" else 0)
"""
SLEEPS = "import time; print('begun', flush=True); time.sleep(60)"


def begun(cli: Any, sandbox: Any, eventually: Any, text: str, nodes: int = 2) -> tuple[Path, str]:
    """A run whose last rank has printed its first line: its directory and its job."""
    words = ("--on", sandbox.name, "--nodes", str(nodes), "--", sys.executable, cli.script(text))
    run = cli.json("show", cli("run", *words).stdout.strip())
    folder = Path(run["dir"])
    has_begun(folder, eventually, 1, nodes - 1)
    (log,) = folder.glob("slurm-*.log")
    return folder, log.stem.removeprefix("slurm-")


def has_begun(folder: Path, eventually: Any, attempt: int, rank: int = 1) -> None:
    log = folder / "attempts" / str(attempt) / f"rank-{rank}.log"
    eventually(lambda: log.exists() and "begun" in log.read_text(), what=str(log))


def facts_of(folder: Path, attempt: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        (folder / "attempts" / str(attempt) / "attempt.json").read_text()
    )
    return found


def test_ranks_that_are_ended_have_time_to_save(cli: Any, sandbox: Any, eventually: Any) -> None:
    folder, job = begun(cli, sandbox, eventually, SAVES_AT_THE_END)
    sandbox.run("scancel", job)
    assert cli.json("wait", check=103)["state"] == "cancelled"
    for rank in (0, 1):
        assert (folder / "attempts" / "1" / f"rank-{rank}.log").read_text() == "begun\nsaved\n"
    assert facts_of(folder, 1)["outcome"] == "stopped"


def test_a_requeued_job_is_the_next_attempt(cli: Any, sandbox: Any, eventually: Any) -> None:
    folder, job = begun(cli, sandbox, eventually, SLEEPS)
    # held, or it would start again while somebody still looks
    sandbox.run("scontrol", "requeuehold", job)
    eventually(lambda: sandbox.state(job) == "PENDING", what="requeued")
    eventually(lambda: cli.json("show")["state"] == "pending", what="told as pending")
    # not `now`: Slurm 22.05 kills a job for good that starts in the second of its requeue
    sandbox.run("scontrol", "update", f"jobid={job}", "starttime=now+2seconds")
    sandbox.run("scontrol", "release", job)
    has_begun(folder, eventually, 2)
    eventually(lambda: cli.json("show")["state"] == "running", what="told as running")
    assert facts_of(folder, 2)["job"] == facts_of(folder, 1)["job"] == job
    assert len(list(folder.glob("slurm-*.log"))) == 1
    sandbox.run("scancel", job)


def test_a_script_started_by_hand_is_watched_and_cancelled(
    cli: Any, sandbox: Any, eventually: Any
) -> None:
    folder, _ = begun(cli, sandbox, eventually, SLEEPS_THE_SECOND_TIME, nodes=1)
    cli("wait")
    job = sandbox.run("sbatch", "--parsable", str(folder / "job.sh")).strip()
    has_begun(folder, eventually, 2, rank=0)
    eventually(lambda: cli.json("show")["state"] == "running", what="told as running")
    cli("cancel", folder.name.rpartition("-")[2])
    eventually(lambda: sandbox.state(job) == "CANCELLED", what="cancelled")


def test_inside_an_allocation_cancel_ends_the_ranks(cli: Any, sandbox: Any) -> None:
    cli.script(SLEEPS)
    text = f"""
    run=$(rampup run --on {sandbox.name} --nodes 2 --detach -- python script.py) || exit 1
    for i in $(seq 100); do grep -qs begun {cli.runs}/*/attempts/1/rank-1.log && break; sleep 0.1; done
    rampup cancel $run || exit 2
    rampup show $run --json
    squeue --steps --noheader --jobs=$SLURM_JOB_ID -o %i | grep -v extern
    """
    argv = ["salloc", "--nodes=2", "--account=rampup", "--quiet", "bash", "-c", text]
    env = {**cli.env, "SLURM_CONF": sandbox.env["SLURM_CONF"]}
    done = subprocess.run(argv, cwd=cli.cwd, env=env, capture_output=True, text=True, timeout=60)
    shown, *steps = done.stdout.splitlines()
    assert json.loads(shown)["state"] == "cancelled", done.stderr
    assert steps == []
