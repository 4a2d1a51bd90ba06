"""Asking Slurm about many jobs at once: one squeue, and one sacct for those that squeue has
forgotten.

Answers are kept in a cache on this user's own disk: a second look within seconds asks nobody, an
ended job is never asked for again, and when Slurm does not answer, the last known state is still
there with its age.
"""

import os
import re
import time
from collections.abc import Iterable
from pathlib import Path

import msgspec
from msgspec import Struct

from rampup.core import paths as places
from rampup.core.spec import Cluster
from rampup.errors import SchedulerError
from rampup.schedulers.slurm.commands import call

FRESH_S = 2.0
SQUEUE_S, SACCT_S = 2.5, 2.0
"""Together below five seconds: nobody waits longer for a Slurm that is down."""
GOING_ON = (
    "PENDING",
    "CONFIGURING",
    "REQUEUED",
    "REQUEUE_HOLD",
    "SPECIAL_EXIT",
    "RESIZING",
    "SUSPENDED",
    "STOPPED",
)
ACTIVE = ("RUNNING", "COMPLETING", "SIGNALING", "STAGE_OUT")
KEPT_JOBS = 5000


class Job(Struct, frozen=True):
    """What Slurm says of a job."""

    state: str
    reason: str = ""
    start: str = ""
    """When it started, or will at the latest guess."""
    nodes: str = ""

    @property
    def ended(self) -> bool:
        return self.state not in GOING_ON + ACTIVE


def key_of(job: str, name: str) -> str:
    """Which job is meant. Ids alone are used again, by a Slurm that was set up anew; names end with
    the run's id."""
    return f"{job}:{name}"


class Answer(Struct):
    """What is known of jobs, by key, and how old that is. `problem` says why nothing newer could be
    had."""

    jobs: dict[str, Job]
    t: float = 0.0
    problem: str = ""

    @property
    def age_s(self) -> float:
        return time.time() - self.t


def ask(cluster: Cluster, keys: Iterable[str], fresh_s: float) -> Answer:
    """What is known of these jobs, not older than `fresh_s` if Slurm answers."""
    wanted, known = set(keys), read_cache(cluster)
    going_on = {job for job in wanted if job not in known.jobs or not known.jobs[job].ended}
    if not going_on or (known.age_s < fresh_s and going_on <= set(known.jobs)):
        return known if going_on else Answer(known.jobs, time.time())
    try:
        found = squeue(cluster)
    except SchedulerError as error:
        return Answer(known.jobs, known.t, error.message)
    forgotten = going_on - set(found)
    if forgotten:
        try:
            found.update(sacct(cluster, forgotten))
        except SchedulerError as error:
            return Answer({**known.jobs, **found}, known.t or time.time(), error.message)
    answer = Answer({**known.jobs, **found}, time.time())
    for job in going_on - set(found):
        # Slurm knows nothing of it any more: what we knew is no longer true
        answer.jobs.pop(job, None)
    write_cache(cluster, answer)
    return answer


def squeue(cluster: Cluster) -> dict[str, Job]:
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
        key_of(job, name): Job(state, reason, start, nodes)
        for job, state, reason, start, nodes, name in rows
    }


def sacct(cluster: Cluster, keys: Iterable[str]) -> dict[str, Job]:
    """From the accounting data base. A site without one answers nothing: that is no error."""
    # of an array the whole
    listed = ",".join(sorted({key.partition(":")[0].partition("_")[0] for key in keys}))
    fields = "JobID,State,Reason,NodeList,JobName"
    done = call(cluster, ["sacct", "-X", "-n", "-P", "-j", listed, "-o", fields], SACCT_S)
    if done.returncode != 0 and "accounting storage is disabled" not in done.stderr:
        words = done.stderr.strip().splitlines() or ["sacct failed"]
        raise SchedulerError(words[-1], "sacct")
    rows = [line.split("|", 4) for line in done.stdout.splitlines() if line.count("|") >= 4]
    found: dict[str, Job] = {}
    for job, state, reason, nodes, name in rows:
        if state:  # "CANCELLED by 1000" is a state and a name
            told = Job(state.split(" ")[0], reason, nodes=nodes)
            found.update(dict.fromkeys((key_of(one, name) for one in each_of(job)), told))
    return found


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


def read_cache(cluster: Cluster) -> Answer:
    try:
        return msgspec.json.decode(cache_file(cluster).read_bytes(), type=Answer)
    except (OSError, msgspec.MsgspecError):
        return Answer({})


def write_cache(cluster: Cluster, answer: Answer) -> None:
    """Disposable: when it can't be written, Slurm is asked again next time."""
    file = cache_file(cluster)
    jobs = dict(list(answer.jobs.items())[-KEPT_JOBS:])
    beside = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        beside.write_bytes(msgspec.json.encode(Answer(jobs, answer.t)))
        beside.replace(file)
    except OSError:
        beside.unlink(missing_ok=True)
