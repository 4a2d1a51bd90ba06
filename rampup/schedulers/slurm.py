"""The `slurm` scheduler: submit a job script once, and only once; cancel it."""

import time

from rampup.errors import SchedulerError
from rampup.rundir import RunDir
from rampup.schedulers.slurm_commands import call
from rampup.spec import Cluster

TRANSIENT = ("Socket timed out", "temporarily unavailable", "Unable to contact", "Connection refused", "Zero Bytes")
"""After these nobody knows whether the job exists."""
TRIES = 3
SBATCH_S, SCANCEL_S = 60.0, 15.0


def submit(run: RunDir, cluster: Cluster, job_name: str) -> str:
    """The id of the one job of this run."""
    for attempt in range(1, TRIES + 1):
        done = call(cluster, ["sbatch", "--parsable", str(run.job_script)], SBATCH_S)
        if done.returncode == 0:
            return remember(run, cluster, done.stdout.strip().splitlines()[-1].split(";")[0])
        said = done.stderr.strip()
        if not any(sign in said for sign in TRANSIENT):
            raise SchedulerError(f"sbatch refused the job: {last_line(said)}", f"see {run.job_script}")
        time.sleep(0.5 * attempt)
        existing = find_by_name(cluster, job_name)
        if existing:
            return remember(run, cluster, existing)
    raise SchedulerError(
        f"sbatch did not get through, {TRIES} times: {last_line(said)}", f"is {cluster.name} up? scontrol ping"
    )


def find_by_name(cluster: Cluster, job_name: str) -> str | None:
    """The job of a submission whose answer was lost. Names are unique: they end with the run's id."""
    done = call(cluster, ["squeue", "--me", "--noheader", "--states=all", f"--name={job_name}", "-o", "%i"], SBATCH_S)
    if done.returncode != 0:
        raise SchedulerError(
            f"sbatch failed and squeue too, so nobody knows whether the job exists: {last_line(done.stderr)}",
            f"squeue --me --name={job_name}",
        )
    found = done.stdout.split()
    return found[0] if found else None


def remember(run: RunDir, cluster: Cluster, job: str) -> str:
    run.record("submitted", scheduler="slurm", cluster=cluster.name, job=job)
    return job


def cancel(cluster: Cluster, job: str) -> None:
    done = call(cluster, ["scancel", job], SCANCEL_S)
    if done.returncode != 0 and "Invalid job id" not in done.stderr:
        raise SchedulerError(f"scancel failed: {last_line(done.stderr)}", f"is {cluster.name} up? scontrol ping")


def last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else "no reason given"
