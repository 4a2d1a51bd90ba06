"""What a finished job asked for and what it used, by Slurm's accounts: one sacct.

`rampup show` asks through runs/usage.py; nothing is stored.
"""

import math

from rampup.core.spec import Cluster
from rampup.core.units import parse_clock_s, parse_memory_mb
from rampup.errors import SchedulerError
from rampup.schedulers.base import Usage
from rampup.schedulers.slurm.commands import call
from rampup.schedulers.slurm.submit import JOB_OR_TASK

SACCT_S = 2.0
FIELDS = (
    "JobID",
    "State",
    "Elapsed",
    "Timelimit",
    "ReqMem",
    "AllocCPUS",
    "AllocNodes",
    "NTasks",
    "TotalCPU",
    "MaxRSS",
)
GOING_ON = ("PENDING", "RUNNING", "COMPLETING", "REQUEUED", "SUSPENDED")


def from_sacct(cluster: Cluster, job: str, ranks: int) -> Usage | None:
    """None where there is no accounting, or it has not heard of the end yet."""
    if not JOB_OR_TASK.fullmatch(job):
        return None
    try:
        done = call(cluster, ["sacct", "-n", "-P", "-j", job, "-o", ",".join(FIELDS)], SACCT_S)
    except SchedulerError:
        return None
    return read_sacct(done.stdout, ranks)


def read_sacct(text: str, ranks: int) -> Usage | None:
    rows = [
        dict(zip(FIELDS, line.split("|"), strict=True))
        for line in text.splitlines()
        if line.count("|") == 9
    ]
    jobs = [row for row in rows if "." not in row["JobID"]]
    wall_s = (
        parse_clock_s(jobs[0]["Elapsed"])
        if jobs and not jobs[0]["State"].startswith(GOING_ON)
        else None
    )
    if not wall_s:
        return None
    job, cpus = jobs[0], _count(jobs[0]["AllocCPUS"])
    cpu_s = parse_clock_s(job["TotalCPU"])
    return Usage(
        source="sacct",
        wall_s=wall_s,
        time_limit_s=parse_clock_s(job["Timelimit"]),
        cpus_per_rank=cpus / ranks,
        cpus_busy=cpu_s / wall_s / ranks if cpu_s else None,
        mem_asked_mb=asked_mb(job["ReqMem"], _count(job["AllocNodes"]), cpus),
        mem_used_mb=max((used_mb(row) for row in rows if "." in row["JobID"]), default=0.0) or None,
    )


def asked_mb(text: str, nodes: int, cpus: int) -> float | None:
    """Of one node. Since Slurm 21.08 it is the whole job's; before, `4Gn` is for a node and `2Gc`
    for a CPU."""
    if text.endswith("n"):
        return parse_memory_mb(text[:-1]) or None
    if text.endswith("c"):
        return (parse_memory_mb(text[:-1]) or 0.0) * cpus / nodes or None
    return (parse_memory_mb(text) or 0.0) / nodes or None


def used_mb(step: dict[str, str]) -> float:
    """The largest task's memory, for each task of a node: sacct knows the largest alone."""
    each = math.ceil(_count(step["NTasks"]) / _count(step["AllocNodes"]))
    return (parse_memory_mb(step["MaxRSS"]) or 0.0) * each


def _count(text: str) -> int:
    return max(1, int(text)) if text.isdigit() else 1
