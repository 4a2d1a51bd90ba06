"""What the records of a run directory hold, by name and type. A value of another type is foreign,
and readers do not get it.

RunDir and AttemptDir read through this, so that nobody has to fear a file that was damaged, edited
or written by another program: a value is as expected, or it is not there. Names that are not
listed here pass unchecked; whoever reads them knows what they mean. Pure.
"""

from collections.abc import Callable, Mapping
from typing import Any

from rampup.core.metrics import is_number
from rampup.rundir.records import Record

Check = Callable[[Any], bool]
Schema = Mapping[str, "Check | Schema"]
"""For each name the check that its value must pass, or the schema of a table."""
LATEST = 4_102_444_800.0
"""The year 2100: a later time counts milliseconds, or is damaged."""
OUTCOMES = ("completed", "failed", "cancelled", "timeout", "stopped", "again")


def is_moment(value: Any) -> bool:
    """Return whether a value is a time in seconds since 1970."""
    return is_number(value) and 0 <= value < LATEST


def is_whole(value: Any) -> bool:
    return isinstance(value, int) and is_number(value)


def is_text(value: Any) -> bool:
    return isinstance(value, str)


def is_job(value: Any) -> bool:
    """Return whether a value may be the id of a job: it is a part of the name of a file."""
    return isinstance(value, str) and len(value) <= 200 and value.isprintable() and "/" not in value


def is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def is_table(value: Any) -> bool:
    return isinstance(value, dict)


def is_text_list(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(word, str) for word in value)


def is_outcome(value: Any) -> bool:
    return value in OUTCOMES


def is_table_list(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(row, dict) for row in value)


def is_grid(value: Any) -> bool:
    """Return whether a value is a list of rows of numbers, all of one length."""
    return (
        isinstance(value, list)
        and all(isinstance(row, list) and all(map(is_number, row)) for row in value)
        and len({len(row) for row in value}) < 2
    )


def is_number_list(value: Any) -> bool:
    return isinstance(value, list) and all(map(is_number, value))


def is_file_table(value: Any) -> bool:
    """Return whether a value has the size and the sum of files, all of one folder."""
    expected: Schema = {"size": is_whole, "sha256": is_text}
    return isinstance(value, dict) and all(
        "/" not in name and isinstance(file, dict) and has_all(file, expected)
        for name, file in value.items()
    )


def is_checkpoint_meta(value: Any) -> bool:
    """Return whether a value is what an engine says of a checkpoint, and which one is the best."""
    if not isinstance(value, dict):
        return False
    best = value.get("best")
    return best is None or (isinstance(best, dict) and is_whole(best.get("step")))


def optional(check: Check) -> Check:
    return lambda value: value is None or check(value)


PROCESS: Schema = {
    "host": is_text,
    "boot": is_text,
    "pid": is_whole,
    "pid_start": optional(is_whole),
}
RUN: Schema = {
    **dict.fromkeys(("id", "name", "host", "point_id"), is_text),
    **dict.fromkeys(("user", "study"), optional(is_text)),
    "created": is_moment,
    "point": is_table,
}
RESOURCES: Schema = {
    **dict.fromkeys(("nodes", "tasks_per_node"), is_whole),
    **dict.fromkeys(("gpus_per_node", "cpus_per_task"), optional(is_whole)),
    **dict.fromkeys(("mem", "time"), optional(is_text)),
}
CONFIG: Schema = {
    **dict.fromkeys(("name", "kind", "cwd"), is_text),
    **dict.fromkeys(("recipe", "engine", "entry", "folder", "watcher"), optional(is_text)),
    **dict.fromkeys(("command", "argv"), is_text_list),
    **dict.fromkeys(("builtin", "smoke"), is_flag),
    **dict.fromkeys(("train", "checkpoint", "program", "origins"), is_table),
    "time_s": optional(is_number),
    "after": is_table_list,
    "resources": RESOURCES,
    "function": optional(is_table),
    "environment": {"modules": is_text_list, "env": is_text, "container": is_text_list},
    "cluster": {"name": is_text, "scheduler": is_text},
}
ENV: Schema = {
    **dict.fromkeys(("packages", "variables"), is_table),
    "cpus": optional(is_number),
}
"""`code` is a table, or None; whoever reads it looks."""
ATTEMPT: Schema = {
    **PROCESS,
    **dict.fromkeys(("launcher", "cause", "why"), is_text),
    **dict.fromkeys(("job", "next_job"), is_job),
    **dict.fromkeys(("started", "ended"), is_moment),
    **dict.fromkeys(("wall_s", "cpu_s", "max_rss_mb"), is_number),
    **dict.fromkeys(("exit_code", "failed_rank"), optional(is_whole)),
    "world_size": is_whole,
    "outcome": is_outcome,
}
CONTROL: Schema = {
    **PROCESS,
    "program": PROCESS,
    **dict.fromkeys(("number", "after", "attempt"), is_whole),
    **dict.fromkeys(
        ("what", "scheduler", "cluster", "job_name", "state", "reason", "why"),
        is_text,
    ),
    **dict.fromkeys(("job", "allocation"), is_job),
    **dict.fromkeys(("packed", "waits"), is_flag),
    "task": is_whole,
    "t": is_moment,
}
READING = (
    *("bytes", "seconds", "waited_s", "readers", "batch_bytes"),
    *("reads", "hits", "staged_bytes", "staged_s"),
)
"""The event `data`: what rank 0 has read, sample by sample."""
EVENT: Schema = {
    **dict.fromkeys(READING, is_number),
    "what": is_text,
    "t": is_moment,
    "step": is_whole,
    "phases": is_table,
    "metrics": is_table,
}
ERROR: Schema = {
    **dict.fromkeys(("type", "message", "hint", "traceback", "file", "function"), is_text),
    "t": is_moment,
    **dict.fromkeys(("rank", "line"), is_whole),
}
CLUSTERS: Schema = {
    **dict.fromkeys(("classes", "names", "axes"), is_text_list),
    **dict.fromkeys(("class_of", "truth", "assigned"), is_number_list),
    **dict.fromkeys(("pairs", "points"), is_grid),
    "metric": is_text,
    "steps_per_epoch": is_whole,
}
EVALUATION: Schema = {
    **dict.fromkeys(("step", "epoch"), is_whole),
    **dict.fromkeys(("classes", "model", "outputs"), is_text_list),
    **dict.fromkeys(("confusion", "scores", "curves", "truth", "predicted"), is_grid),
    **dict.fromkeys(("weights", "graph", "switches"), is_table_list),
    "samples": is_text,
    "clusters": CLUSTERS,
}
SETTINGS: Schema = dict.fromkeys(("train", "origins"), is_table)
MANIFEST: Schema = {
    **dict.fromkeys(("step", "attempt"), is_whole),
    "t": is_moment,
    "files": is_file_table,
    "meta": is_checkpoint_meta,
}
METRICS: Schema = {"step": is_number, "t": is_moment}
SAMPLE: Schema = {
    "t": is_moment,
    **dict.fromkeys(
        ("cpus", "cpu_percent", "cpu_s", "mem_used_mb", "mem_total_mb", "rss_mb"), is_number
    ),
    "gpus": is_table_list,
}


def drop_foreign(record: Record, schema: Schema) -> Record:
    """Return the record without its foreign values; the same object when it has none."""
    if not find_foreign(record, schema):
        return record
    found = {}
    for name, value in record.items():
        check = schema.get(name)
        if check is None or (callable(check) and check(value)):
            found[name] = value
        elif not callable(check) and isinstance(value, dict):
            found[name] = drop_foreign(value, check)
    return found


def has_all(record: Record, schema: Schema) -> bool:
    """Return whether every value of a schema is there, and as it should be."""
    return schema.keys() <= record.keys() and not find_foreign(record, schema)


def find_foreign(record: Record, schema: Schema) -> list[str]:
    """Return the names of the values that have another type than they should."""
    found = []
    for name, value in record.items():
        check = schema.get(name)
        if check is None:
            continue
        if not callable(check) and isinstance(value, dict):
            found += [f"{name}.{inner}" for inner in find_foreign(value, check)]
        elif not callable(check) or not check(value):
            found.append(name)
    return found
