"""What the records of a run directory hold, by name and type. What has another type is foreign and
not passed on.

rundir.py reads through this, so that no reader has to fear a file that was damaged, edited or
written by another program: a value is as expected, or it is not there. Names that are not listed
here pass; what they mean, their reader knows.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

from rampup.rundir.records import Record

Fits = Callable[[Any], bool]
Shape = Mapping[str, "Fits | Shape"]
"""For each name what fits there, or the shape of a table."""
LARGEST = 1e15
LATEST = 4_102_444_800.0
"""The year 2100: what is later counts milliseconds, or is damaged."""
OUTCOMES = ("completed", "failed", "cancelled", "timeout", "stopped", "again")


def number(value: Any) -> bool:
    known = isinstance(value, int | float) and not isinstance(value, bool)
    return known and abs(value) < LARGEST and math.isfinite(value)


def moment(value: Any) -> bool:
    """Seconds since 1970."""
    return number(value) and 0 <= value < LATEST


def whole(value: Any) -> bool:
    return isinstance(value, int) and number(value)


def text(value: Any) -> bool:
    return isinstance(value, str)


def flag(value: Any) -> bool:
    return isinstance(value, bool)


def table(value: Any) -> bool:
    return isinstance(value, dict)


def words(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(word, str) for word in value)


def outcome(value: Any) -> bool:
    return value in OUTCOMES


def tables(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(row, dict) for row in value)


def grid(value: Any) -> bool:
    """Rows of numbers, all of one length."""
    return (
        isinstance(value, list)
        and all(isinstance(row, list) and all(map(number, row)) for row in value)
        and len({len(row) for row in value}) < 2
    )


def maybe(fits: Fits) -> Fits:
    return lambda value: value is None or fits(value)


PROCESS: Shape = {"host": text, "boot": text, "pid": whole, "pid_start": maybe(whole)}
RUN: Shape = {
    **dict.fromkeys(("id", "name", "host", "point_id"), text),
    **dict.fromkeys(("user", "study"), maybe(text)),
    "created": moment,
    "point": table,
}
RESOURCES: Shape = {
    **dict.fromkeys(("nodes", "tasks_per_node"), whole),
    **dict.fromkeys(("gpus_per_node", "cpus_per_task"), maybe(whole)),
    **dict.fromkeys(("mem", "time"), maybe(text)),
}
CONFIG: Shape = {
    **dict.fromkeys(("name", "kind", "cwd"), text),
    **dict.fromkeys(("recipe", "engine", "entry", "folder"), maybe(text)),
    **dict.fromkeys(("command", "argv"), words),
    **dict.fromkeys(("builtin", "smoke"), flag),
    **dict.fromkeys(("train", "checkpoint", "origins"), table),
    "time_s": maybe(number),
    "resources": RESOURCES,
    "environment": {"modules": words, "env": text, "container": words},
    "cluster": {"name": text, "scheduler": text},
}
ATTEMPT: Shape = {
    **PROCESS,
    **dict.fromkeys(("launcher", "job", "next_job", "cause", "why"), text),
    **dict.fromkeys(("started", "ended"), moment),
    **dict.fromkeys(("wall_s", "cpu_s", "max_rss_mb"), number),
    **dict.fromkeys(("exit_code", "failed_rank"), maybe(whole)),
    "world_size": whole,
    "outcome": outcome,
}
CONTROL: Shape = {
    **PROCESS,
    **dict.fromkeys(
        ("what", "scheduler", "cluster", "job", "job_name", "allocation", "state", "reason"), text
    ),
    **dict.fromkeys(("packed", "waits"), flag),
    "task": whole,
    "t": moment,
}
EVENT: Shape = {"what": text, "t": moment, "step": whole, "phases": table, "metrics": table}
ERROR: Shape = {
    **dict.fromkeys(("type", "message", "hint", "traceback"), text),
    "t": moment,
    "rank": whole,
}
EVALUATION: Shape = {
    **dict.fromkeys(("step", "epoch"), whole),
    **dict.fromkeys(("classes", "model"), words),
    **dict.fromkeys(("confusion", "scores", "curves"), grid),
    **dict.fromkeys(("weights", "graph"), tables),
    "samples": text,
}
METRICS: Shape = {"step": number, "t": moment}
SAMPLE: Shape = {
    "t": moment,
    **dict.fromkeys(
        ("cpus", "cpu_percent", "cpu_s", "mem_used_mb", "mem_total_mb", "rss_mb"), number
    ),
    "gpus": tables,
}


def fitting(record: Record, shape: Shape) -> Record:
    """The record without what is foreign in it; the same object when nothing is."""
    if not foreign(record, shape):
        return record
    found = {}
    for name, value in record.items():
        fits = shape.get(name)
        if fits is None or (callable(fits) and fits(value)):
            found[name] = value
        elif not callable(fits) and isinstance(value, dict):
            found[name] = fitting(value, fits)
    return found


def foreign(record: Record, shape: Shape) -> list[str]:
    """The names of values that have another type than they should."""
    found = []
    for name, value in record.items():
        fits = shape.get(name)
        if fits is None:
            continue
        if not callable(fits) and isinstance(value, dict):
            found += [f"{name}.{inner}" for inner in foreign(value, fits)]
        elif not callable(fits) or not fits(value):
            found.append(name)
    return found
