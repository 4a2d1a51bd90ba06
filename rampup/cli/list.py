"""`rampup list`: the runs of every root that was ever used, the newest first."""

import gc
import time
from typing import Any

import click

from rampup.cli import output
from rampup.cli.arguments import json_option, study_option
from rampup.rundir import find as runs
from rampup.rundir.files import AttemptDir, State
from rampup.rundir.history import attempt_duration_s
from rampup.rundir.records import Record
from rampup.runs.state import Seen, look, states_of

SHOWN = 20


@click.command()
@click.option("--all", "show_all", is_flag=True, help=f"All of them, not the newest {SHOWN} alone.")
@click.option(
    "--state",
    "wanted",
    type=click.Choice(list(output.STATE_COLOURS)),
    help="Only runs in this state.",
)
@study_option("Only the runs of this study, with what it varies.")
@click.option(
    "--columns",
    metavar="A,B,...",
    help="Settings, resources and metrics to compare: lr,nodes,val_accuracy.",
)
@click.option("--sort", metavar="COLUMN", help="By this column: of a metric the best first.")
@json_option
def command(
    show_all: bool,
    wanted: str | None,
    study: str | None,
    columns: str | None,
    sort: str | None,
    as_json: bool,
) -> int:
    """The runs, the newest first."""
    # thousands of small objects that all live to the end: looking for garbage would take a tenth
    gc.disable()
    if study is not None or columns is not None or sort is not None:
        from rampup.cli.compare import compare  # not for who only looks what there is

        return compare(study, columns, sort, wanted, show_all, as_json)
    found = runs.all_runs()
    chosen = [look(run) for run in (found if show_all or wanted else found[:SHOWN])]
    states = states_of(chosen, causes=False)
    rows = [describe_briefly(seen, states[seen.run.path]) for seen in chosen]
    rows = [row for row in rows if wanted in (None, row["state"])]
    if as_json:
        output.emit_json(rows)
        return 0
    if not rows:
        return tell_nothing(wanted)
    head = ("id", "name", "state", "age", "took", "ranks", "last")
    output.table(head, [cells(row) for row in rows], right=frozenset({3, 4, 5}))
    if len(chosen) < len(found):
        output.say(f"{len(found) - len(chosen)} older ones: rampup list --all")
    output.next_step(f"rampup show {rows[0]['id']}")
    return 0


def tell_nothing(wanted: str | None) -> int:
    output.say("no runs" + (f" that are {wanted}" if wanted else ""))
    output.next_step("rampup run digits")
    return 0


def describe_briefly(seen: Seen, state: State) -> dict[str, Any]:
    run, attempt, facts = seen
    name, created = runs.parse_run_name(run)
    # of most runs the directory is not read a second time
    several = attempt is not None and attempt.number > 1
    earlier = run.attempts()[-2::-1] if several else []
    return {
        "id": run.id,
        "dir": str(run.path),
        "name": name,
        "state": state.name,
        "as_of_s": state.as_of_s,
        "created": created,
        "attempts": len(earlier) + 1 if attempt else 0,
        "wall_s": spent(seen, earlier) if state.ended else None,
        "ranks": facts.get("world_size"),
        "metrics": last_metrics(attempt, earlier) if attempt else {},
    }


def spent(seen: Seen, earlier: list[AttemptDir]) -> float | None:
    """Over all attempts. Of the newest, `look` has read what is needed; most runs have no other."""
    last = attempt_duration_s(seen.attempt, seen.facts) if seen.attempt else None
    if not earlier:
        return last
    known = [seconds for it in earlier if (seconds := attempt_duration_s(it, it.facts)) is not None]
    return sum(known) + (last or 0.0) if known else last


def last_metrics(newest: AttemptDir, earlier: list[AttemptDir]) -> Record:
    """Of the newest attempt that has written some."""
    found = newest.last_metrics()
    while not found and earlier:
        newest, *earlier = earlier
        found = newest.last_metrics()
    return found


def cells(row: dict[str, Any]) -> tuple[str, ...]:
    created, wall, metrics = row["created"], row["wall_s"], row["metrics"]
    liked = headline(metrics)
    shown = [f"{key} {output.number(value)}" for key, value in metrics.items() if key in liked]
    return (
        row["id"],
        row["name"],
        state_words(row),
        age(time.time() - created) if created else "?",
        output.duration(wall) if wall is not None else "-",
        str(row["ranks"] or "-"),
        "  ".join(shown),
    )


def state_words(row: dict[str, Any]) -> str:
    several = f", attempt {row['attempts']}" if row["attempts"] > 1 else ""
    old = f", {age(row['as_of_s'])} ago" if row["as_of_s"] is not None else ""
    return f"{row['state']}{several}{old}"


def headline(metrics: dict[str, Any]) -> tuple[str, ...]:
    """At most two: what people look for first."""
    liked = [key for key in metrics if key.startswith("val_")] or [
        key for key in metrics if "loss" in key
    ]
    return ("epoch", *sorted(liked)[:1])


def age(seconds: float) -> str:
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
