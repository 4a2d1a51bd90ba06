"""Requested against used, for people: the lines of `show` about CPU, memory and time, with the
option that fits."""

import math
from collections.abc import Callable
from typing import Any

from msgspec import to_builtins

from rampup.cli import output
from rampup.config.clusters import of_run
from rampup.core.spec import Cluster
from rampup.errors import Refused
from rampup.rundir.files import RunDir
from rampup.rundir.trust import is_obeyed
from rampup.runs.state import ENDED
from rampup.runs.usage import MEM_MARGIN, better_options, usage_of
from rampup.schedulers.base import Usage


def usage_when_ended(run: RunDir, state: str) -> Usage | None:
    """Of a run on a cluster; for one on this machine its launcher has written down what it used."""
    attempt = run.last_attempt()
    if state not in ENDED or attempt is None or "job" not in attempt.facts:
        return None
    return usage_of(run, _cluster_of(run))


def _cluster_of(run: RunDir) -> Cluster | None:
    try:
        submitted = run.recorded("submitted") or {}
        # a run inside an allocation is only a part of that job
        if "job" not in submitted or submitted.get("packed"):
            return None
        return of_run(submitted.get("cluster", ""), run.config.get("cluster", {}), is_obeyed(run))
    except Refused:  # its profile is gone
        return None


def usage_json(usage: Usage | None, state: str) -> Any:
    """`better` holds options that would have been enough; only a run that did all its work can
    tell."""
    if usage is None:
        return None
    return {**to_builtins(usage), "better": better_options(usage) if state == "completed" else {}}


def usage_lines(usage: Usage | None, state: str) -> list[str]:
    if usage is None:
        return []
    notes = advice(usage) if state == "completed" else []
    return [f"used: {', '.join(parts(usage))}", *(f"note: {words}" for words in notes)]


def parts(usage: Usage) -> list[str]:
    found = [output.duration(usage.wall_s) + _of(usage.time_limit_s, output.duration)]
    if usage.cpus_busy is not None and usage.cpus_per_rank is not None:
        found.append(f"{usage.cpus_busy:.1f} of {usage.cpus_per_rank:g} CPUs per rank")
    if usage.mem_used_mb is not None:
        found.append(
            f"{memory(usage.mem_used_mb)}{_of(usage.mem_asked_mb, memory)} of memory per node"
        )
    return found


def _of(asked: float | None, words: Callable[[float], str]) -> str:
    return "" if asked is None else f" of {words(asked)}"


def advice(usage: Usage) -> list[str]:
    """`asked 24 GB, used 3.9 GB: --mem 5G`"""
    better, found = better_options(usage), []
    asked_mb, used_mb = usage.mem_asked_mb or math.inf, usage.mem_used_mb or 0.0
    if used_mb > asked_mb:
        risk = "a site that enforces the limit would have killed it"
        more = f"--mem {math.ceil(MEM_MARGIN * used_mb / 1024)}G"
        found.append(f"asked {memory(asked_mb)}, used {memory(used_mb)}: {risk}; {more}")
    if "mem" in better and usage.mem_asked_mb is not None and usage.mem_used_mb is not None:
        found.append(
            f"asked {memory(usage.mem_asked_mb)}, used {memory(usage.mem_used_mb)}: --mem {better['mem']}"
        )
    if "time" in better and usage.time_limit_s is not None:
        asked, took = output.duration(usage.time_limit_s), output.duration(usage.wall_s)
        found.append(f"asked {asked}, took {took}: --time {better['time']}")
    if "cpus-per-task" in better:
        shares = f"{usage.cpus_per_rank:g} CPUs per rank, {usage.cpus_busy:.1f} busy"
        found.append(f"{shares}: --cpus-per-task {better['cpus-per-task']}")
    return found


def memory(megabytes: float) -> str:
    return f"{megabytes / 1024:.3g} GB" if megabytes >= 1000 else f"{megabytes:.0f} MB"
