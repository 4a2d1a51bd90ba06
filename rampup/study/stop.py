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
from rampup.runs.stop import cancel, record_cancelled
from rampup.schedulers import find_scheduler
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
            if may_change(run.path) and not state_of(run).ended:
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
    are `saving` is left: its script begins none that was cancelled."""
    busy = {
        asked
        for run in saving
        if (asked := find_job(observe(run), run.recorded("submitted") or {}))
    }
    jobs: dict[tuple[str, str], dict[str, RunDir]] = {}
    for run in going:
        submitted = run.recorded("submitted") or {}
        asked = find_job(observe(run), submitted)
        own_name = f"{run.run.get('name')}-{run.id}"
        if asked is not None and (submitted.get("packed") or asked.name != own_name):
            run.record("cancelled", by="rampup cancel")
            if asked not in busy:
                jobs.setdefault((asked.cluster, asked.name), {})[asked.job] = run
        else:
            cancel(run)
    for (cluster, name), mine in jobs.items():
        one = next(iter(mine.values()))
        profile = of_run(cluster, one.config.get("cluster", {}), is_obeyed(one))
        find_scheduler(profile.scheduler).cancel_jobs(profile, name, list(mine))
