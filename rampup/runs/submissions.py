"""Submissions of which nobody has recorded how they ended: the process that made them was killed, or
sbatch said something odd.

The scheduler is asked for a job of that name, which no other run has, and what it knows is recorded.
Called by runs/state.py for every verb that reads or judges runs, and before a run is cancelled. Only
the owner of a run looks for its jobs: nobody records or ends anything for somebody else.
"""

import contextlib
from collections.abc import Sequence
from pathlib import Path

from rampup.config.clusters import of_run
from rampup.errors import Refused, SchedulerError
from rampup.rundir import claims, clocks
from rampup.rundir.files import RunDir
from rampup.rundir.records import Record
from rampup.rundir.trust import is_obeyed, owns
from rampup.schedulers import find_scheduler

NEVER_CAME_S = 86_400.0
"""After so long a job of which the scheduler knows nothing will not come any more."""
Lost = tuple[RunDir, Record]
"""A run, and the submission whose answer was lost."""


def find_submissions(runs: dict[RunDir, list[Record]], patient: bool = True) -> dict[Path, str]:
    """Find the jobs of open submissions, and record them. `runs` have with them what the control
    side wrote down; where something is recorded, that is read anew. Returns the runs that are being
    submitted now, or of which nobody can tell, each with the reason why it is pending."""
    found: dict[Path, str] = {}
    lost: dict[str, list[Lost]] = {}
    for run, control in runs.items():
        asked = claims.find_open(control)
        if asked is None:
            continue
        if claims.is_in_progress(asked, run.control_file):
            found[run.path] = "it is being submitted"
        elif not owns(run.path):
            found[run.path] = "its submission was interrupted; only its owner can look for its job"
        else:
            lost.setdefault(asked.get("cluster", ""), []).append((run, asked))
    for cluster, those in lost.items():
        try:
            record_found_jobs(cluster, those, patient)
        except SchedulerError as error:
            cause = f"its submission was interrupted, and {error.message}"
            found.update({run.path: cause for run, _ in those})
        runs.update({run: run.control() for run, _ in those})
    return found


def record_found_jobs(cluster: str, lost: Sequence[Lost], patient: bool) -> None:
    """Ask a scheduler for jobs by their names, once for all, and record those that exist."""
    try:
        run = lost[0][0]
        profile = of_run(cluster, run.config.get("cluster", {}), is_obeyed(run))
    except Refused:  # a sandbox that was taken down, and its jobs with it
        return
    scheduler = find_scheduler(profile.scheduler)
    names = list(dict.fromkeys(asked.get("job_name", "") for _, asked in lost))
    jobs = scheduler.find_jobs(profile, names, patient)
    for run, asked in lost:
        before = set(run.jobs())
        fresh = [job for job in jobs.get(asked.get("job_name", ""), ()) if job not in before]
        # a full disk: the scheduler will be asked again
        with contextlib.suppress(OSError):
            if fresh:
                scheduler.cancel_jobs(
                    profile, asked.get("job_name", ""), find_extra(asked, fresh, lost)
                )
                claims.record_submitted(run, {"scheduler": scheduler.name, **asked}, fresh[0])
            elif clocks.age_of_file(run.control_file) > NEVER_CAME_S:
                why = f"{scheduler.title} knows no job of that name"
                run.record("not submitted", number=asked.get("number"), why=why)


def find_extra(asked: Record, fresh: Sequence[str], lost: Sequence[Lost]) -> list[str]:
    """Return the jobs to end: more than one try may have come through. If one of them has begun,
    it may itself have put another behind it."""
    together = [it for it in lost if it[1].get("job_name") == asked.get("job_name")]
    mine = together if asked.get("packed") else [it for it in together if it[1] is asked]
    if any(has_begun_after(*it) for it in mine):
        return []
    return [claims.name_job(asked, job) for job in fresh[1:]]


def has_begun_after(run: RunDir, asked: Record) -> bool:
    """Whether a job of the run began after this submission."""
    newest = run.last_attempt()
    return newest is not None and newest.number > asked.get("after", 0)
