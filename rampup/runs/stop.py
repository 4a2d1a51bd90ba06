"""Ending a run: by a request to save and stop, or through its scheduler. `rampup cancel` calls it."""

import contextlib
import time

from rampup.config.clusters import of_run
from rampup.errors import Refused, SchedulerError
from rampup.rundir import claims, opening
from rampup.rundir.files import RunDir
from rampup.rundir.records import refuse_write
from rampup.rundir.trust import is_obeyed, refuse_foreign
from rampup.runs.state import find_job, observe
from rampup.runs.submissions import find_submissions
from rampup.schedulers import find_recorded, find_scheduler
from rampup.schedulers.local import find_supervisor

SUBMIT_WAIT_S = 120.0
POLL_S = 0.2


def can_save(run: RunDir) -> bool:
    """Whether a run can save on request: its loop has checked for it."""
    attempt = run.last_attempt()
    return attempt is not None and opening.is_file(attempt.listens_file)


def ask_to_stop(run: RunDir) -> None:
    """Let the run save after its current step, and end. Only a loop that checks for it can do
    that."""
    attempt = run.last_attempt()
    refuse_foreign(run, "stop it")
    if attempt is None or not can_save(run):
        raise Refused(
            f"run {run.id} can't save on request: its program has not checked run.should_stop",
            f"rampup cancel {run.id}, without --save",
        )
    run.record("stop asked", by="rampup cancel --save", attempt=attempt.number)
    try:
        opening.touch(attempt.stop_file)
    except OSError as error:
        raise refuse_write(attempt.stop_file, error) from None


def cancel(run: RunDir) -> None:
    """Stop a run through its scheduler."""
    refuse_foreign(run, "stop it")
    wait_for_submission(run)
    submitted = run.recorded("submitted") or {}
    job = find_job(observe(run), submitted)
    # a run that waits in a sweep or shares a job: the process that has it reads this record
    if submitted.get("packed") or submitted.get("waits"):
        withdraw(run)
    elif job is not None:
        cluster = of_run(job.cluster, run.config.get("cluster", {}), is_obeyed(run))
        find_scheduler(cluster.scheduler).cancel(run, cluster, job)
        record_cancelled(run)
    else:
        find_supervisor(run)  # refused before anything is recorded: it may live on another host
        record_cancelled(run)
        find_recorded(run.config.get("cluster", {}).get("scheduler")).stop_process(run)


def withdraw(run: RunDir) -> None:
    """Record that a run was cancelled, for the process that has it in its hands."""
    claims.mark_cancelled(run)  # first: a pack must not begin what is called cancelled
    run.record("cancelled", by="rampup cancel")


def record_cancelled(run: RunDir, by: str = "rampup cancel") -> None:
    """Write down who ended the run. On a full disk it must still be ended."""
    with contextlib.suppress(OSError):
        run.record("cancelled", by=by)


def wait_for_submission(run: RunDir) -> None:
    """Wait until a process that is just starting the run has recorded what it started: only then
    can it be cancelled."""
    deadline = time.monotonic() + SUBMIT_WAIT_S
    while is_being_submitted(run):
        if time.monotonic() > deadline:
            raise SchedulerError(
                f"run {run.id} is still being submitted", f"try again later: rampup cancel {run.id}"
            )
        time.sleep(POLL_S)
    if observe(run).facts.get("outcome") != "completed":
        find_submissions({run: run.control()})


def is_being_submitted(run: RunDir) -> bool:
    asked = claims.find_open(run.control())
    return claims.is_being_started(run) or (
        asked is not None and claims.is_in_progress(asked, run.control_file)
    )
