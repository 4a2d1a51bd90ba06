"""What a finished run asked for and what it used: by the scheduler's accounts, or by our own samples
where there are none. `rampup show` asks; nothing is stored."""

import math

from msgspec.structs import replace

from rampup.core.spec import Cluster
from rampup.core.units import parse_memory_mb
from rampup.rundir.files import AttemptDir, RunDir
from rampup.schedulers import find_scheduler
from rampup.schedulers.base import Usage

SHORT_S = 60.0
"""A shorter run says little of CPU and memory: starting up is most of it, and sites sample every 30
s."""
MEM_MARGIN, TIME_MARGIN, CPU_MARGIN = 1.25, 1.5, 1.1
WORTH_MB = 1024.0
"""Less memory than this is not worth a word."""


def usage_of(run: RunDir, cluster: Cluster | None) -> Usage | None:
    """Of the last attempt. `cluster` is None where its profile is gone, or the run was part of a
    larger job."""
    attempt = run.last_attempt()
    if attempt is None:
        return None
    job = attempt.facts.get("job")
    ranks = int(attempt.facts.get("world_size") or 1)
    told = None
    if cluster is not None and job:
        told = find_scheduler(cluster.scheduler).read_usage(cluster, job, ranks)
    seen = from_samples(run, attempt, ranks)
    if told is None or seen is None:
        return told or seen
    # a site may keep accounts and measure nothing
    return replace(
        told,
        cpus_busy=told.cpus_busy or seen.cpus_busy,
        mem_used_mb=told.mem_used_mb or seen.mem_used_mb,
    )


def from_samples(run: RunDir, attempt: AttemptDir, ranks: int) -> Usage | None:
    facts, asked = attempt.facts, run.config.get("resources", {})
    if "ended" not in facts or "started" not in facts:
        return None
    wall_s = float(facts["ended"]) - float(facts["started"])
    nodes = list(attempt.samples().values())
    cpu_s = sum(max((row.get("cpu_s", 0.0) for row in rows), default=0.0) for rows in nodes)
    return Usage(
        source="samples",
        wall_s=wall_s,
        time_limit_s=run.config.get("time_s"),
        cpus_per_rank=asked.get("cpus_per_task") or 1,
        cpus_busy=cpu_s / wall_s / ranks if cpu_s and wall_s > 0 else None,
        mem_asked_mb=parse_memory_mb(asked.get("mem") or "") or None,
        mem_used_mb=max(
            (float(row.get("rss_mb", 0)) for rows in nodes for row in rows), default=0.0
        )
        or None,
    )


# what is better -----------------------------------------------------------------------------------


def better_options(usage: Usage) -> dict[str, str]:
    """Options of `run` that would have been enough, for what was far more than that."""
    found = {
        "mem": better_mem(usage),
        "time": better_time(usage),
        "cpus-per-task": better_cpus(usage),
    }
    return {name: value for name, value in found.items() if value is not None}


def better_mem(usage: Usage) -> str | None:
    asked, used = usage.mem_asked_mb, usage.mem_used_mb
    if (
        not asked
        or not used
        or usage.wall_s < SHORT_S
        or used > asked / 2
        or asked - used < WORTH_MB
    ):
        return None
    enough = used * MEM_MARGIN
    return f"{math.ceil(enough / 1024)}G" if enough > 1024 else f"{math.ceil(enough / 100) * 100}M"


def better_time(usage: Usage) -> str | None:
    minutes = math.ceil(usage.wall_s * TIME_MARGIN / 60)
    if usage.time_limit_s is None or 2 * minutes * 60 > usage.time_limit_s:
        return None
    return f"{minutes // 60}:{minutes % 60:02d}:00"


def better_cpus(usage: Usage) -> str | None:
    asked, busy = usage.cpus_per_rank, usage.cpus_busy
    if asked is None or busy is None or usage.wall_s < SHORT_S or busy > asked / 2:
        return None
    enough = max(1, math.ceil(busy * CPU_MARGIN))
    return str(enough) if enough < asked else None
