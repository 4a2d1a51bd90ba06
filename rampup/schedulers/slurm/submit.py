"""Submitting a job script to Slurm once, and only once; cancelling its jobs."""

import os
import time
from collections.abc import Collection, Sequence
from pathlib import Path

from rampup.core.spec import Cluster
from rampup.errors import SchedulerError
from rampup.rundir.files import RunDir
from rampup.schedulers.slurm.commands import SchedulerTimeout, call

TRANSIENT = (
    "Socket timed out",
    "temporarily unavailable",
    "Unable to contact",
    "Connection refused",
    "Zero Bytes",
)
"""After these nobody knows whether the job exists."""
TRIES = 3
SBATCH_S, SCANCEL_S = 30.0, 15.0
IDS_AT_ONCE = 1000
"""On one command line."""


def submit(run: RunDir, cluster: Cluster, job_name: str) -> str:
    """The id of the one job of this run."""
    job = submit_script(cluster, run.job_script, job_name, known_jobs(run))
    run.record("submitted", scheduler="slurm", cluster=cluster.name, job=job)
    return job


def submit_script(
    cluster: Cluster, script: Path, job_name: str, before: Collection[str] = ()
) -> str:
    """The id of the one job of that name, besides those that are known from before."""
    said = ""
    for attempt in range(1, TRIES + 1):
        job, said = try_sbatch(cluster, script)
        if said:  # the answer was lost, and perhaps not the job
            time.sleep(0.5 * attempt)
        others = find_by_name(cluster, job_name) if said or attempt > 1 else []
        others = [other for other in others if other not in before]
        jobs = list(dict.fromkeys([job, *others] if job else others))
        if jobs:
            for extra in jobs[1:]:  # an earlier try came through after all, later than we looked
                call(cluster, ["scancel", extra], SCANCEL_S)
            return jobs[0]
    raise SchedulerError(
        f"sbatch did not get through, {TRIES} times: {said}", f"is {cluster.name} up? scontrol ping"
    )


def known_jobs(run: RunDir) -> set[str]:
    """The jobs that the run has had already: a resumed run goes on under the same name."""
    attempts = [attempt.facts for attempt in run.attempts()]
    told = [facts.get(key) for facts in attempts for key in ("job", "next_job")]
    return {
        str(job) for job in (*told, *(row.get("job") for row in run.records("submitted"))) if job
    }


def try_sbatch(cluster: Cluster, script: Path) -> tuple[str, str]:
    """The id of the job, or what was said when nobody knows whether there is one."""
    try:
        done = call(cluster, ["sbatch", "--parsable", str(script)], SBATCH_S)
    except SchedulerTimeout as error:
        return "", error.message
    if done.returncode == 0:
        return done.stdout.strip().splitlines()[-1].split(";")[0], ""
    said = last_line(done.stderr)
    if not any(sign in done.stderr for sign in TRANSIENT):
        raise SchedulerError(f"sbatch refused the job: {said}", f"see {script}")
    return "", said


def find_by_name(cluster: Cluster, job_name: str) -> list[str]:
    """The jobs of a submission whose answer was lost, the oldest first. Names end with the run's
    id."""
    form = [
        "squeue",
        "--me",
        "--noheader",
        "--states=all",
        "--sort=i",
        f"--name={job_name}",
        "-o",
        "%i",
    ]
    done = call(cluster, form, SBATCH_S)
    if done.returncode != 0:
        raise SchedulerError(
            f"sbatch failed and squeue too, so nobody knows whether the job exists: {last_line(done.stderr)}",
            f"squeue --me --name={job_name}",
        )
    # of several clusters it names the one it asked
    found = [word for word in done.stdout.split() if word[0].isdigit()]
    # the tasks of an array are one job
    return list(dict.fromkeys(word.partition("_")[0] for word in found))


def cancel(cluster: Cluster, job_name: str, job: str = "", array_name: str = "") -> None:
    """End every job of the run: the one that we submitted, and those that somebody started from its
    script by hand. One that is a task of an array has the array's name, and is found by its id."""
    if is_task(job):
        cancel_jobs(cluster, array_name, [job])
    scancel(cluster, [f"--user={os.getuid()}", f"--name={job_name}"])


def is_task(job: str) -> bool:
    return "_" in job


def cancel_jobs(cluster: Cluster, job_name: str, jobs: Sequence[str]) -> None:
    """End these jobs or tasks of arrays, however many, if they have that name: a Slurm that was set
    up anew gives the same ids again, to others."""
    for first in range(0, len(jobs), IDS_AT_ONCE):
        scancel(cluster, [f"--name={job_name}", *jobs[first : first + IDS_AT_ONCE]])


def scancel(cluster: Cluster, words: Sequence[str]) -> None:
    done = call(cluster, ["scancel", *words], SCANCEL_S)
    if done.returncode != 0 and "Invalid job id" not in done.stderr:
        raise SchedulerError(
            f"scancel failed: {last_line(done.stderr)}", f"is {cluster.name} up? scontrol ping"
        )


def last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else "no reason given"
