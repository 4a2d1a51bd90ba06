"""Stopping a study: who still starts runs of it, and all that go on, with few words to Slurm.
Called by `cancel`."""

import contextlib
import os
import signal
import time
from collections.abc import Sequence

from rampup.config.clusters import of_run
from rampup.core import processes
from rampup.errors import Refused, SchedulerError
from rampup.rundir import records, schema
from rampup.rundir.files import RunDir
from rampup.rundir.records import Record
from rampup.rundir.trust import is_obeyed, may_change
from rampup.runs.state import find_job, observe, state_of
from rampup.runs.stop import cancel, record_cancelled, withdraw
from rampup.schedulers import find_scheduler
from rampup.schedulers.base import JobRef
from rampup.schedulers.local import CANCEL_WAIT_S
from rampup.study.members import Study


def is_being_started(study: Study) -> bool:
    """Whether somebody still starts runs of it. Of another machine nobody can tell, so its mark
    counts."""
    who = read_mark(study)
    return bool(who) and (processes.is_alive(who) or who.get("host") != processes.host())


def read_mark(study: Study) -> Record:
    """Return the process that starts runs of a study; none where somebody else wrote down which."""
    return schema.drop_foreign(records.read_json(study.mark), schema.PROCESS)


def is_sweep(who: Record) -> bool:
    """Whether a process is one of ours that starts the runs of a study: a mark may name any."""
    words = processes.read_command(who["pid"])
    return words is None or ("sweep" in words and any("rampup" in word for word in words))


def stop_starting(study: Study) -> None:
    """A sweep in a foreground, perhaps of another terminal: as Ctrl-C there."""
    if os.path.isdir(study.folder) and not may_change(study.folder):
        raise Refused(f"study {study.name} is not yours", f"its files are in {study.folder}")
    who = read_mark(study)
    if not who:
        return
    if who.get("host") != processes.host():
        raise SchedulerError(
            f"study {study.name} is being started on {who.get('host')}", f"if not: rm {study.mark}"
        )
    if processes.is_alive(who) and is_sweep(who):
        for run in study.runs():  # its own record would name the signal
            if not may_change(run.path) or state_of(run).ended:
                continue
            if find_shared_job(run) is None:
                record_cancelled(run)
        with contextlib.suppress(ProcessLookupError):  # it ended just now
            os.kill(who["pid"], signal.SIGTERM)
    deadline = time.monotonic() + CANCEL_WAIT_S
    while processes.is_alive(who) and is_sweep(who):
        if time.monotonic() > deadline:
            raise SchedulerError(f"the sweep of {study.name} did not end", f"kill -9 {who['pid']}")
        time.sleep(0.1)


def cancel_all(going: Sequence[RunDir], saving: Sequence[RunDir] = ()) -> None:
    """Runs of a study that go on, with one scancel for each array or pack. A pack in which others
    are `saving` is left: its script begins none that was cancelled.

    A run is recorded as cancelled after its job was: who is killed in between leaves a run whose job
    has ended, and not a job in the queue whose runs are all cancelled."""
    busy = {
        asked
        for run in saving
        if (asked := find_job(observe(run), run.recorded("submitted") or {}))
    }
    jobs: dict[tuple[str, str], dict[str, list[RunDir]]] = {}
    for run in going:
        asked = find_shared_job(run)
        if asked is None:
            cancel(run)
        elif asked in busy:
            withdraw(run)
        else:
            jobs.setdefault((asked.cluster, asked.name), {}).setdefault(asked.job, []).append(run)
    for (cluster, name), mine in jobs.items():
        runs = [run for those in mine.values() for run in those]
        profile = of_run(cluster, runs[0].config.get("cluster", {}), is_obeyed(runs[0]))
        find_scheduler(profile.scheduler).cancel_jobs(profile, name, list(mine))
        for run in runs:
            record_cancelled(run)


def find_shared_job(run: RunDir) -> JobRef | None:
    """Return the array or pack that a run is part of; None for a run with a job of its own, and for
    a process of this machine."""
    submitted = run.recorded("submitted") or {}
    asked = find_job(observe(run), submitted)
    own_name = f"{run.run.get('name')}-{run.id}"
    if asked is None or not (submitted.get("packed") or asked.name != own_name):
        return None
    return asked
