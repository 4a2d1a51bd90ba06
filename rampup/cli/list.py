"""`rampup list`: the runs of every root that was ever used, the newest first."""

import time
from typing import Any

import click

from rampup import runs
from rampup.cli import output
from rampup.cli.arguments import json_option
from rampup.rundir import RunDir

SHOWN = 20


@click.command()
@click.option("--all", "show_all", is_flag=True, help=f"All of them, not the newest {SHOWN} alone.")
@click.option("--state", "wanted", metavar="STATE", help="Only runs in this state.")
@json_option
def command(show_all: bool, wanted: str | None, as_json: bool) -> int:
    """The runs, the newest first."""
    found = runs.all_runs()
    chosen = found if show_all or wanted else found[:SHOWN]
    rows = [row for run in chosen if (row := describe_briefly(run)) and wanted in (None, row["state"])]
    if as_json:
        output.emit_json(rows)
        return 0
    if not rows:
        output.say("no runs" + (f" that are {wanted}" if wanted else ""))
        output.next_step("rampup run digits")
        return 0
    head = ("id", "name", "state", "age", "took", "ranks", "last")
    output.table(head, [cells(row) for row in rows], right=frozenset({3, 4, 5}))
    if len(chosen) < len(found):
        output.say(f"{len(found) - len(chosen)} older ones: rampup list --all")
    output.next_step(f"rampup show {rows[0]['id']}")
    return 0


def describe_briefly(run: RunDir) -> dict[str, Any]:
    identity, attempt = run.run, run.last_attempt()
    facts = attempt.facts if attempt else {}
    return {
        "id": run.id,
        "dir": str(run.path),
        "name": identity.get("name", "?"),
        "state": run.state_of(attempt, facts).name,
        "created": identity.get("created"),
        "wall_s": facts.get("wall_s"),
        "ranks": facts.get("world_size"),
        "metrics": attempt.last_metrics() if attempt else {},
    }


def cells(row: dict[str, Any]) -> tuple[str, ...]:
    created, wall = row["created"], row["wall_s"]
    shown = [
        f"{key} {output.number(value)}" for key, value in row["metrics"].items() if key in headline(row["metrics"])
    ]
    return (
        row["id"],
        row["name"],
        row["state"],
        age(time.time() - created) if created else "?",
        output.duration(wall) if wall is not None else "-",
        str(row["ranks"] or "-"),
        "  ".join(shown),
    )


def headline(metrics: dict[str, Any]) -> tuple[str, ...]:
    """At most two: what people look for first."""
    liked = [key for key in metrics if key.startswith("val_")] or [key for key in metrics if "loss" in key]
    return ("epoch", *sorted(liked)[:1])


def age(seconds: float) -> str:
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
