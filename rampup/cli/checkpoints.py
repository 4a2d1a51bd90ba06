"""The checkpoints of a run: what is there, how large, and whether it is sound.

Called by `rampup show --checkpoints`, which imports it only then, and by `rampup clean`. It only
reads.
"""

import time
from typing import Any

from rampup.cli import output
from rampup.rundir import checkpoints
from rampup.rundir.checkpoints import Damaged
from rampup.rundir.files import RunDir

MB = 1e6


def show_checkpoints(run: RunDir, verify: bool, as_json: bool) -> int:
    rows = describe(run, verify)
    damaged = [row for row in rows if row["fault"]]
    if as_json:
        output.emit_json(rows)
        return 1 if damaged else 0
    if not rows:
        print(f"{run.id} has no checkpoint")
        return 0
    head = ("step", "written", "size", "attempt", "ranks", "best", "state")
    output.table(head, [cells(row) for row in rows], right=frozenset((0, 2, 3, 4)))
    if not verify:
        output.next_step(f"rampup show {run.id} --checkpoints --verify")
    elif damaged:
        output.say("a run that goes on takes the newest sound one")
    return 1 if damaged else 0


def describe(run: RunDir, verify: bool) -> list[dict[str, Any]]:
    """Describe all, the newest first. `sound` is None where the files were not read; the manifest
    always is."""
    rows = [describe_one(run, step, verify) for step in checkpoints.list_steps(run)]
    best = best_step(run)
    return [{**row, "best": row["step"] == best} for row in rows]


def describe_one(run: RunDir, step: int, verify: bool) -> dict[str, Any]:
    facts: dict[str, Any] = dict.fromkeys(("t", "bytes", "attempt", "world_size", "sound"))
    try:
        found = checkpoints.read_checkpoint(run, step)
        facts["t"] = found.manifest["t"]
        facts["bytes"] = found.size
        facts["attempt"] = found.manifest["attempt"]
        facts["world_size"] = found.meta.get("world_size")
        if verify:
            checkpoints.verify_checkpoint(run, step)
            facts["sound"] = True
    except Damaged as error:
        return {"step": step, **facts, "sound": False, "fault": error.fault}
    return {"step": step, **facts, "fault": None}


def best_step(run: RunDir) -> int | None:
    """Return the best step, by what the newest checkpoint that can be read knows."""
    for step in checkpoints.list_steps(run):
        try:
            best = checkpoints.read_checkpoint(run, step).meta.get("best")
        except Damaged:
            continue
        return int(best["step"]) if best else None
    return None


def cells(row: dict[str, Any]) -> tuple[str, ...]:
    age = size = "?"
    if row["t"] is not None:
        age = f"{output.duration(max(0.0, time.time() - row['t']))} ago"
    if row["bytes"] is not None:
        size = f"{row['bytes'] / MB:,.1f} MB"
    attempt, ranks = str(row["attempt"] or "?"), str(row["world_size"] or "?")
    best = "best" if row["best"] else ""
    state = {True: "sound", False: f"damaged: {row['fault']}", None: ""}[row["sound"]]
    return (str(row["step"]), age, size, attempt, ranks, best, state)
