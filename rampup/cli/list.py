"""`rampup list`: the runs of every root that was ever used, the newest first."""

import time
from typing import Any

import click

from rampup import runs
from rampup.cli import output
from rampup.cli.arguments import json_option
from rampup.rundir import State
from rampup.states import Seen, look, states_of
from rampup.summary import wall_s

SHOWN = 20


@click.command()
@click.option("--all", "show_all", is_flag=True, help=f"All of them, not the newest {SHOWN} alone.")
@click.option("--state", "wanted", type=click.Choice(list(output.STATE_COLOURS)), help="Only runs in this state.")
@json_option
def command(show_all: bool, wanted: str | None, as_json: bool) -> int:
    """The runs, the newest first."""
    found = runs.all_runs()
    chosen = [look(run) for run in (found if show_all or wanted else found[:SHOWN])]
    states = states_of(chosen)
    rows = [describe_briefly(seen, states[seen.run.path]) for seen in chosen]
    rows = [row for row in rows if wanted in (None, row["state"])]
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


def describe_briefly(seen: Seen, state: State) -> dict[str, Any]:
    run, attempt, facts = seen
    identity = run.run
    return {
        "id": run.id,
        "dir": str(run.path),
        "name": identity.get("name", "?"),
        "state": state.name,
        "as_of_s": state.as_of_s,
        "created": identity.get("created"),
        "wall_s": wall_s(facts),
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
        row["state"] if row["as_of_s"] is None else f"{row['state']}, {age(row['as_of_s'])} ago",
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
