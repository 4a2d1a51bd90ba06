"""Which job a run has, and what its scheduler knows of it: for state.py, and for the verbs that end
jobs.

A job is that of the last submission, unless somebody started the script by hand after it. Where
nobody recorded how a submission ended, the scheduler is asked for its job by name. Nothing here
judges a run. What is learnt is recorded: the job of a lost submission, and how a job ended, before
the scheduler forgets it.
"""

import contextlib
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from rampup.config.clusters import of_run
from rampup.errors import RampupError, Refused, SchedulerError
from rampup.rundir import submissions
from rampup.rundir.files import AttemptDir, RunDir
from rampup.rundir.records import Record
from rampup.schedulers import find_recorded, find_scheduler
from rampup.schedulers.base import Answer, Job, JobRef, Scheduler


class Observation(NamedTuple):
    """A run with what its newest attempt says of itself: read once, however many ask."""

    run: RunDir
    attempt: AttemptDir | None
    facts: Record


class Question(NamedTuple):
    """A run whose state depends on a job."""

    key: str
    seen: Observation
    packed: bool
    """Whether the job has other runs, too."""


def observe(run: RunDir) -> Observation:
    attempt = run.last_attempt()
    return Observation(run, attempt, attempt.facts if attempt else {})


# submissions whose answer was lost ----------------------------------------------------------------


def find_submissions(runs: Iterable[Observation]) -> dict[Path, str]:
    """Find the jobs of submissions of which nobody has recorded how they ended, and record them.
    Returns why the others are pending: runs that are being submitted now, or of which nobody can
    tell."""
    found: dict[Path, str] = {}
    lost: dict[str, list[tuple[RunDir, Record]]] = {}
    for run, _, facts in runs:
        if facts.get("outcome") == "completed":
            continue
        asked = submissions.find_open(run.control())
        if asked is None:
            continue
        if submissions.is_in_progress(asked, run.control_file):
            found[run.path] = "it is being submitted"
        else:
            lost.setdefault(asked.get("cluster", ""), []).append((run, asked))
    for cluster, those in lost.items():
        try:
            record_found_jobs(cluster, those)
        except SchedulerError as error:
            cause = f"its submission was interrupted, and {error.message}"
            found.update({run.path: cause for run, _ in those})
    return found


def record_found_jobs(cluster: str, lost: Sequence[tuple[RunDir, Record]]) -> None:
    """Ask a scheduler for jobs by their names, once for all, and record those that exist."""
    try:
        profile = of_run(cluster, lost[0][0].config.get("cluster", {}))
    except Refused:  # a sandbox that was taken down, and its jobs with it
        return
    scheduler = find_scheduler(profile.scheduler)
    names = list(dict.fromkeys(asked.get("job_name", "") for _, asked in lost))
    jobs = scheduler.find_jobs(profile, names)
    for run, asked in lost:
        name = asked.get("job_name", "")
        before = set(run.jobs())
        fresh = [job for job in jobs.get(name, ()) if job not in before]
        if fresh:
            # more than one try may have come through
            together = lost if asked.get("packed") else [(run, asked)]
            if not any(has_begun_after(*it) for it in together if it[1].get("job_name") == name):
                extra = [submissions.name_job(asked, job) for job in fresh[1:]]
                scheduler.cancel_jobs(profile, name, extra)
            asked = {"scheduler": scheduler.name, **asked}
            # somebody else's run, or a full disk: the scheduler will be asked again
            with contextlib.suppress(OSError):
                submissions.record_submitted(run, asked, fresh[0])


def has_begun_after(run: RunDir, asked: Record) -> bool:
    """Whether a job of the run began after this submission: it may have put another behind it."""
    newest = run.last_attempt()
    return newest is not None and newest.number > asked.get("after", 0)


# which job, and what is known of it ---------------------------------------------------------------


def find_job(seen: Observation, submitted: Record) -> JobRef | None:
    """The job to ask for: of the last submission, unless the script was started by hand after it;
    None for a process of this machine."""
    run, attempt, facts = seen
    name = f"{run.run.get('name')}-{run.id}"
    cluster = submitted.get("cluster") or run.config.get("cluster", {}).get("name", "")
    is_later = attempt is not None and is_after(attempt.number, facts.get("started"), submitted)
    # where a site does not requeue, the job script puts another job behind its own
    behind = facts.get("next_job")
    if behind and is_later:
        return JobRef(cluster, behind, name)
    known = (submitted.get("job"), submitted.get("allocation"))
    if "job" in facts and facts["job"] not in known and is_later:
        return JobRef(cluster, facts["job"], name)
    if "job" in submitted:  # a job of several runs has a name of its own
        return JobRef(
            submitted.get("cluster", ""), submitted["job"], submitted.get("job_name") or name
        )
    return None


def is_after(number: int, moment: float | None, submitted: Record) -> bool:
    """Whether an attempt came after a submission. Its number decides: the clock of a node may be
    wrong. A submission that names no attempt was made by an older rampup, or on this machine."""
    if "after" in submitted:
        return bool(number > submitted["after"])
    return bool((moment or 0.0) > submitted.get("t", 0.0))


def ask(cluster: str, run: RunDir, keys: Iterable[str], fresh_s: float) -> tuple[Scheduler, Answer]:
    """`run` is one that was given to that cluster: from another directory its profile may not be
    seen."""
    kept = run.config.get("cluster", {})
    try:
        profile = of_run(cluster, kept)
        scheduler = find_scheduler(profile.scheduler)
    except RampupError:  # a sandbox that was taken down, and its jobs with it
        return find_recorded(kept.get("scheduler")), Answer({}, time.time())
    return scheduler, scheduler.ask(profile, keys, fresh_s)


def is_outdated(question: Question, answer: Answer, asked: float) -> bool:
    """Whether the attempt says that it runs, while an answer from before says that its job waits or
    has ended. An ended job starts once more when somebody requeues it."""
    job, seen = answer.jobs.get(question.key), question.seen
    if job is None or job.running or seen.attempt is None or "outcome" in seen.facts:
        return False
    if not job.ended:
        return bool(seen.facts) and answer.t < asked
    last = find_recorded_end(seen, question.key)
    return last is None or has_begun_since(seen, last)


def find_recorded_end(seen: Observation, key: str) -> Record | None:
    """The end of a job as a reader recorded it."""
    last = seen.run.recorded("ended")
    return last if last is not None and last.get("job") == key else None


def has_begun_since(seen: Observation, end: Record) -> bool:
    return bool(seen.facts.get("started", 0.0) > end.get("t", 0.0))


def find_known_job(seen: Observation, key: str, scheduler: Scheduler, answer: Answer) -> Job | None:
    """A scheduler forgets, and a sandbox is taken down: the first reader that hears how a job ended
    records it."""
    job, last = answer.jobs.get(key), find_recorded_end(seen, key)
    if job is None and last is not None:
        return scheduler.restore_job(last.get("state", ""), last.get("reason", ""))
    if job is not None and job.ended and (last is None or has_begun_since(seen, last)):
        # somebody else's run, or a full disk: the scheduler will be asked again
        with contextlib.suppress(OSError):
            seen.run.record("ended", job=key, state=job.state, reason=job.reason)
    return job
