"""Submitting a job script to Slurm once, and only once; cancelling its jobs.

What is about to happen is recorded before sbatch may begin. Every answer of sbatch but an id or a
clear refusal is a lost answer: then the name of the job, which no other run has, says whether there
is a job.
"""

import os
import re
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from rampup.core.spec import Cluster
from rampup.errors import Rejected, SchedulerError
from rampup.rundir import claims
from rampup.rundir.files import RunDir
from rampup.rundir.records import Record
from rampup.schedulers.slurm.commands import Done, SchedulerTimeout, call, finish, prepare

TRANSIENT = (
    "Socket timed out",
    "temporarily unavailable",
    "Unable to contact",
    "Connection refused",
    "Connection reset",
    "Connection timed out",
    "Broken pipe",
    "Zero Bytes",
    "Unexpected message received",
    "Message send failure",
    "Message receive failure",
    "Header lengths are longer than data received",
    "Insane message length",
    "Protocol authentication error",
)
"""The connection to Slurm broke: after these it is unknown whether the job exists."""
TRIES = 3
SBATCH_S, SQUEUE_S, SCANCEL_S, SACCT_S = 30.0, 30.0, 15.0, 15.0
AT_ONCE = 1000
"""Ids on one command line."""
NAMES_AT_ONCE = 200
ACCOUNTS_SINCE = "now-30days"
"""A submission whose answer was lost is not older than that, or nobody misses it."""
JOB_ID = re.compile(r"(\d{1,12})(?:;\S+)?")
"""What `sbatch --parsable` prints."""
TASK = re.compile(r"\d{1,12}_\d{1,9}")
JOB_OR_TASK = re.compile(r"\d{1,12}(_\d{1,9})?")
"""A record may hold anything: nothing else is passed to scancel."""

Announce = Callable[[Record], None]
"""Writes down the process that is about to submit."""


class Answer(NamedTuple):
    """What became of one call of sbatch."""

    job: str = ""
    said: str = ""
    """Why there is no id."""
    is_refusal: bool = False
    """Whether sbatch itself says that there is no job."""
    may_retry: bool = False
    """Whether sbatch did not get through to Slurm, as far as anybody can tell."""


def submit(run: RunDir, cluster: Cluster, job_name: str) -> str:
    """Submit the script of a run, and return the id of its one job. The caller has claimed the
    start of the run."""
    start = claims.describe_start(run)
    number = start["number"]
    asked = {
        **start,
        "scheduler": "slurm",
        "cluster": cluster.name,
        "job_name": job_name,
    }

    def announce(program: Record) -> None:
        claims.find_own_claim(run)  # refuses: we may have been away for long
        claims.record_submitting(run, asked, program)

    try:
        with claims.reserved_room(run):
            job = submit_script(cluster, run.job_script, job_name, set(run.jobs()), announce)
    except Rejected as error:
        run.record("not submitted", number=number, why=error.message)
        raise
    claims.keep_submitted(run, asked, job)
    return job


def submit_script(
    cluster: Cluster,
    script: Path,
    job_name: str,
    before: Collection[str] = (),
    announce: Announce = lambda program: None,
) -> str:
    """Submit a script, and return the id of the one job of that name, besides those that are known
    from before."""
    for attempt in range(1, TRIES + 1):
        answer = try_sbatch(cluster, script, announce)
        # an earlier try may still come through, and may itself be why this one is refused
        if answer.is_refusal and attempt == 1:
            raise Rejected(f"sbatch refused the job: {answer.said}", f"see {script}")
        others: list[str] = []
        if not answer.job or attempt > 1:
            time.sleep(0.5 * attempt)
            named = find_by_name(cluster, [job_name])[job_name]
            others = [job for job in named if job not in before]
        jobs = list(dict.fromkeys([answer.job, *others] if answer.job else others))
        if jobs:
            for extra in jobs[1:]:  # an earlier try came through after all, later than we looked
                call(cluster, ["scancel", extra], SCANCEL_S)
            return jobs[0]
        if not answer.may_retry:
            # squeue and sacct may be late, so the submission stays open
            raise SchedulerError(f"sbatch gave no job: {answer.said}", f"see {script}")
    raise SchedulerError(
        f"sbatch failed {TRIES} times: {answer.said}",
        f"is {cluster.name} up? scontrol ping",
    )


def try_sbatch(cluster: Cluster, script: Path, announce: Announce) -> Answer:
    """Call sbatch once. The process is written down before it may begin."""
    gate = prepare(cluster, ["sbatch", "--parsable", str(script)])
    try:
        announce(gate.identify())
        gate.open()
    except BaseException:
        gate.kill()
        raise
    try:
        done = finish(cluster, gate, SBATCH_S)
    except SchedulerTimeout as error:
        return Answer(said=error.message, may_retry=True)
    return read_answer(done)


def read_answer(done: Done) -> Answer:
    """Tell an id, a refusal and a lost answer apart. A site may have put a program of its own before
    sbatch, so only one line that is an id, and only the words of sbatch itself, count."""
    said = last_line(done.stderr)
    fitting = (JOB_ID.fullmatch(line.strip()) for line in done.stdout.splitlines())
    ids = {found[1] for found in fitting if found}
    if done.returncode == 0:
        if len(ids) == 1:
            return Answer(ids.pop())
        return Answer(said=f"it printed {done.stdout.strip()[:200]!r} in place of a job id")
    if any(sign in done.stderr for sign in TRANSIENT):
        return Answer(said=said, may_retry=True)
    if done.returncode < 0 or done.returncode > 128:
        return Answer(said=f"it ended by a signal ({done.returncode}): {said}", may_retry=True)
    return Answer(said=said, is_refusal=not ids and "sbatch: error:" in done.stderr)


def find_by_name(
    cluster: Cluster, names: Sequence[str], squeue_s: float = SQUEUE_S, sacct_s: float = SACCT_S
) -> dict[str, list[str]]:
    """Return the jobs of each name, the oldest first: those that Slurm still has, or else those of
    its accounts. Names end with the run's id, so they are nobody else's."""
    found: dict[str, list[str]] = {name: [] for name in names}
    for some in split(names, NAMES_AT_ONCE):
        ask = ["squeue", "--me", "--noheader", "--states=all", "--sort=i", "-o", "%i|%j"]
        collect_jobs(cluster, [*ask, f"--name={','.join(some)}"], squeue_s, found)
    left = [name for name, jobs in found.items() if not jobs]
    for some in split(left, NAMES_AT_ONCE):
        ask = ["sacct", "-X", "-n", "-P", "-o", "JobID,JobName", f"--starttime={ACCOUNTS_SINCE}"]
        collect_jobs(cluster, [*ask, f"--name={','.join(some)}"], sacct_s, found)
    return found


def collect_jobs(
    cluster: Cluster, ask: list[str], timeout_s: float, found: dict[str, list[str]]
) -> None:
    """Add the jobs that one question finds. The tasks of an array are one job."""
    done = call(cluster, ask, timeout_s)
    if done.returncode != 0 and "accounting storage is disabled" not in done.stderr:
        raise SchedulerError(
            f"it is unknown whether the job exists: {ask[0]} failed: {last_line(done.stderr)}",
            f"is {cluster.name} up? scontrol ping",
        )
    for line in done.stdout.splitlines():
        job, _, name = line.strip().partition("|")
        number = job.partition("_")[0]
        # of several clusters squeue names the one it asked
        if number.isdigit() and name in found and number not in found[name]:
            found[name].append(number)


def split(words: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    return (words[first : first + size] for first in range(0, len(words), size))


def cancel(cluster: Cluster, job_name: str, job: str = "", array_name: str = "") -> None:
    """End every job of the run: the one that we submitted, and those that somebody started from its
    script by hand. One that is a task of an array has the array's name, and is found by its id."""
    if is_task(job):
        cancel_jobs(cluster, array_name, [job])
    scancel(cluster, [f"--user={os.getuid()}", f"--name={job_name}"])


def is_task(job: str) -> bool:
    return TASK.fullmatch(job) is not None


def cancel_jobs(cluster: Cluster, job_name: str, jobs: Sequence[str]) -> None:
    """End these jobs or tasks of arrays, however many, if they have that name: a Slurm that was set
    up anew gives the same ids again, to others."""
    for some in split([job for job in jobs if JOB_OR_TASK.fullmatch(job)], AT_ONCE):
        scancel(cluster, [f"--name={job_name}", *some])


def scancel(cluster: Cluster, words: Sequence[str]) -> None:
    done = call(cluster, ["scancel", *words], SCANCEL_S)
    if done.returncode != 0 and "Invalid job id" not in done.stderr:
        raise SchedulerError(
            f"scancel failed: {last_line(done.stderr)}", f"is {cluster.name} up? scontrol ping"
        )


def last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else "no reason given"
