"""Asking Slurm about many jobs at once: one squeue, and one sacct for those that squeue has
forgotten.

Answers are kept in a cache on this user's own disk: a second look within seconds asks nobody, an
ended job is never asked for again, and when Slurm does not answer, the last known state is still
there with its age.
"""

import re
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from rampup.core import paths as places
from rampup.core.spec import Cluster
from rampup.errors import SchedulerError
from rampup.rundir.records import name_beside
from rampup.schedulers.base import Answer, Canceller, job_key
from rampup.schedulers.slurm.commands import call
from rampup.schedulers.slurm.jobs import SlurmJob
from rampup.schedulers.slurm.submit import AT_ONCE, JOB_OR_TASK, split

SQUEUE_S, SACCT_S = 2.5, 2.0
"""Together below five seconds: nobody waits longer for a Slurm that is down."""
KEPT_JOBS = 5000
IS_ID = re.compile(r"\d{1,12}")
"""An id that a run directory holds may be anything."""


class SlurmAnswer(Answer):
    """An answer as it is kept in the cache."""

    jobs: dict[str, SlurmJob]


def ask(cluster: Cluster, keys: Iterable[str], fresh_s: float) -> SlurmAnswer:
    """What is known of these jobs, not older than `fresh_s` if Slurm answers. With 0 an ended job
    is asked for, too: somebody may have requeued it."""
    wanted, known = set(keys), read_cache(cluster)
    ended = {key for key, job in known.jobs.items() if job.ended} if fresh_s > 0 else set()
    going_on = wanted - ended
    if not going_on or (known.is_fresh(fresh_s) and going_on <= set(known.jobs)):
        return known if going_on else SlurmAnswer(known.jobs, time.time())
    try:
        found = squeue(cluster)
    except SchedulerError as error:
        return SlurmAnswer(known.jobs, known.t, error.message)
    forgotten = going_on - set(found)
    if forgotten:
        try:
            found.update(sacct(cluster, forgotten))
        except SchedulerError as error:
            return SlurmAnswer({**known.jobs, **found}, known.t or time.time(), error.message)
    answer = SlurmAnswer({**known.jobs, **found}, time.time())
    for key in going_on - set(found):
        # Slurm knows nothing of it any more: unless it had ended, what we knew is no longer true
        if key in known.jobs and not known.jobs[key].ended:
            del answer.jobs[key]
    write_cache(cluster, answer)
    return answer


def squeue(cluster: Cluster) -> dict[str, SlurmJob]:
    """All jobs of this user that the controller still has, the ended ones of the last minutes
    too."""
    form = "%i|%T|%r|%S|%N|%j"
    done = call(
        cluster, ["squeue", "--me", "--array", "--noheader", "--states=all", "-o", form], SQUEUE_S
    )
    if done.returncode != 0:
        words = done.stderr.strip().splitlines() or ["squeue failed"]
        raise SchedulerError(words[-1], "scontrol ping")
    rows = [line.split("|", 5) for line in done.stdout.splitlines() if line.count("|") >= 5]
    return {
        job_key(job, name): SlurmJob(state, reason, start, nodes)
        for job, state, reason, start, nodes, name in rows
    }


def sacct(cluster: Cluster, keys: Iterable[str]) -> dict[str, SlurmJob]:
    """Ask the accounting data base. A site without one answers nothing, which is not an error."""
    # of an array the whole
    ids = sorted({key.partition(":")[0].partition("_")[0] for key in keys})
    found: dict[str, SlurmJob] = {}
    for some in split([job for job in ids if IS_ID.fullmatch(job)], AT_ONCE):
        found.update(sacct_some(cluster, some))
    return found


def sacct_some(cluster: Cluster, ids: Sequence[str]) -> dict[str, SlurmJob]:
    fields = "JobID,State,Reason,NodeList,JobName"
    done = call(cluster, ["sacct", "-X", "-n", "-P", "-j", ",".join(ids), "-o", fields], SACCT_S)
    if done.returncode != 0 and "accounting storage is disabled" not in done.stderr:
        words = done.stderr.strip().splitlines() or ["sacct failed"]
        raise SchedulerError(words[-1], "sacct")
    rows = [line.split("|", 4) for line in done.stdout.splitlines() if line.count("|") >= 4]
    found: dict[str, SlurmJob] = {}
    for job, state, reason, nodes, name in rows:
        if state:  # "CANCELLED by 1000" is a state and a name
            told = SlurmJob(state.split(" ")[0], reason, nodes=nodes)
            found.update(dict.fromkeys((job_key(one, name) for one in each_of(job)), told))
    return found


def find_canceller(cluster: Cluster, job: str) -> Canceller | None:
    """Slurm keeps the number of the user who ended a job, where it keeps accounts."""
    if not JOB_OR_TASK.fullmatch(job):
        return None
    done = call(cluster, ["sacct", "-X", "-n", "-P", "-j", job, "-o", "State"], SACCT_S)
    user = re.search(r"CANCELLED by (\d+)", done.stdout)
    return Canceller(int(user[1]), "scancel", f"sacct -j {job}") if user else None


def each_of(job: str) -> list[str]:
    """`7_[0-2,5%4]`, the tasks of an array that never began, is 7_0, 7_1, 7_2, 7_5; any other id is
    itself."""
    array, _, tasks = job.partition("_")
    if not tasks.startswith("["):
        return [job]
    ranges = re.findall(r"(\d+)(?:-(\d+))?(?::(\d+))?", tasks.partition("%")[0])
    each = (
        range(int(first), int(last or first) + 1, int(step or 1)) for first, last, step in ranges
    )
    return [f"{array}_{task}" for tasks_of_range in each for task in tasks_of_range]


def cache_file(cluster: Cluster) -> Path:
    return places.cache_home() / "rampup" / "slurm" / f"{cluster.name}.json"


def read_cache(cluster: Cluster) -> SlurmAnswer:
    try:
        return msgspec.json.decode(cache_file(cluster).read_bytes(), type=SlurmAnswer)
    except (OSError, msgspec.MsgspecError):
        return SlurmAnswer({})


def write_cache(cluster: Cluster, answer: SlurmAnswer) -> None:
    """Disposable: when it can't be written, Slurm is asked again next time."""
    file = cache_file(cluster)
    jobs = dict(list(answer.jobs.items())[-KEPT_JOBS:])
    beside = name_beside(file)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        beside.write_bytes(msgspec.json.encode(SlurmAnswer(jobs, answer.t)))
        beside.replace(file)
    except OSError:
        beside.unlink(missing_ok=True)
