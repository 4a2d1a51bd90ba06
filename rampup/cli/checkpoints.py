"""The checkpoints of a run for `rampup show --checkpoints`: what is there, how large, and whether
it is sound."""

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
    """The newest first. `sound` is None where nobody has looked; a manifest is always looked at."""
    rows = [describe_one(run, step, verify) for step in checkpoints.list_steps(run)]
    best = best_step(run)
    return [{**row, "best": row["step"] == best} for row in rows]


def describe_one(run: RunDir, step: int, verify: bool) -> dict[str, Any]:
    facts: dict[str, Any] = dict.fromkeys(("t", "bytes", "attempt", "world_size", "sound"))
    try:
        found = checkpoints.read_checkpoint(run, step)
        facts |= {
            "t": found.manifest["t"],
            "attempt": found.manifest["attempt"],
            "bytes": found.size,
        }
        facts["world_size"] = found.meta.get("world_size")
        if verify:
            checkpoints.verify_checkpoint(run, step)
            facts["sound"] = True
    except Damaged as error:
        return {"step": step, **facts, "sound": False, "fault": error.fault}
    return {"step": step, **facts, "fault": None}


def best_step(run: RunDir) -> int | None:
    """By what the newest one that can be read knows."""
    for step in checkpoints.list_steps(run):
        try:
            best = checkpoints.read_checkpoint(run, step).meta.get("best")
        except Damaged:
            continue
        return int(best["step"]) if best else None
    return None


def cells(row: dict[str, Any]) -> tuple[str, ...]:
    age = "?" if row["t"] is None else f"{output.duration(max(0.0, time.time() - row['t']))} ago"
    size = "?" if row["bytes"] is None else f"{row['bytes'] / MB:,.1f} MB"
    state = {True: "sound", False: f"damaged: {row['fault']}", None: ""}[row["sound"]]
    best = "best" if row["best"] else ""
    return (
        str(row["step"]),
        age,
        size,
        str(row["attempt"] or "?"),
        str(row["world_size"] or "?"),
        best,
        state,
    )
