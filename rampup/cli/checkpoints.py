"""The checkpoints of a run: what is there, how large, and whether it is sound.

Called by `rampup show --checkpoints`, which imports it only then. It only reads.
"""

import contextlib
import time
from typing import Any

from rampup.cli import output
from rampup.rundir import checkpoints
from rampup.rundir.checkpoints import Damaged, Entry, Kind, Unreadable
from rampup.rundir.files import RunDir

MB = 1e6
ASIDE = {
    Kind.DAMAGED: "damaged, set aside",
    Kind.SKIPPED: "skipped by resume --before",
}


def show_checkpoints(run: RunDir, verify: bool, as_json: bool) -> int:
    rows = describe(run, verify)
    faulty = [row for row in rows if row["fault"]]
    if as_json:
        output.emit_json(rows)
        return 1 if faulty else 0
    if not rows:
        output.write_whole(f"{run.id} has no checkpoint")
        return 0
    head = ("step", "written", "size", "attempt", "ranks", "best", "state")
    output.table(head, [cells(row) for row in rows], right=frozenset((0, 2, 3, 4)))
    if not verify:
        output.next_step(f"rampup show {run.id} --checkpoints --verify")
    elif any(row["sound"] is False for row in faulty):
        output.say("a resumed run uses the newest valid one")
    if any(row["state"] == "unreadable" for row in rows):
        output.say(
            "a run can't be resumed while its newest checkpoint can't be read: try again, or"
        )
        output.say(f"continue from an older one: rampup resume {run.id} --before STEP")
    return 1 if faulty else 0


def describe(run: RunDir, verify: bool) -> list[dict[str, Any]]:
    """Describe all, the newest first, and last what was set aside. `sound` is None where the files
    were not read; the manifest always is."""
    entries = checkpoints.list_entries(run)
    copies = checkpoints.find_copies(entries).values()
    rows = [describe_one(entry, verify) for entry in copies]
    best = find_best(rows)
    aside = sorted((each for each in entries if each.kind in ASIDE), key=lambda each: -each.step)
    rows += [describe_aside(entry) for entry in aside]
    for row in rows:
        meta = row.pop("meta")
        row["world_size"] = meta.get("world_size")
        row["best"] = row["step"] == best and row["name"].startswith("step-")
    return rows


def describe_one(entry: Entry, verify: bool) -> dict[str, Any]:
    row = make_row(entry)
    try:
        found = checkpoints.read_copy(entry.path, entry.step)
        row |= describe_manifest(found)
        if verify:
            checkpoints.verify_copy(entry.path, entry.step)
            row |= {"sound": True, "state": "sound"}
    except Damaged as error:
        row |= {"sound": False, "state": "damaged", "fault": error.fault}
    except Unreadable as error:
        row |= {"state": "unreadable", "fault": error.fault}
    return row


def describe_aside(entry: Entry) -> dict[str, Any]:
    """Describe what was set aside. That it is damaged or can't be read is known, and not a fault of
    the run any more."""
    row = make_row(entry) | {"state": ASIDE[entry.kind]}
    with contextlib.suppress(Damaged, Unreadable):
        row |= describe_manifest(checkpoints.read_copy(entry.path, entry.step))
    return row


def make_row(entry: Entry) -> dict[str, Any]:
    facts = dict.fromkeys(("t", "bytes", "attempt", "world_size", "sound", "fault"))
    return {"step": entry.step, "name": entry.name, **facts, "state": "", "meta": {}}


def describe_manifest(found: checkpoints.Checkpoint) -> dict[str, Any]:
    return {
        "t": found.manifest["t"],
        "bytes": found.size,
        "attempt": found.manifest["attempt"],
        "meta": found.meta,
    }


def find_best(rows: list[dict[str, Any]]) -> int | None:
    """Return the best step, by what the newest checkpoint that can be read knows."""
    for row in rows:
        if row["attempt"] is not None:
            best = row["meta"].get("best")
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
    state = "valid" if row["sound"] else row["state"]
    if row["fault"]:
        state = f"{state}: {row['fault']}"
    if ".old-" in row["name"]:
        state = f"{state} (as {row['name']})".strip()
    return (str(row["step"]), age, size, attempt, ranks, best, state)
