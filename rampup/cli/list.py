"""`rampup list`: the runs of every root that was ever used, or of one study, the newest first.

With --study, --columns or --sort they are compared side by side: see compare.py.
"""

import gc
from typing import Any

import click

from rampup.cli import output
from rampup.cli.options import complete_columns, complete_name, json_option, study_option
from rampup.cli.selection import report_states, select_all
from rampup.errors import RunNotFound, nearest
from rampup.rundir import clocks, find
from rampup.rundir.files import AttemptDir, RunDir
from rampup.rundir.history import attempt_duration_s
from rampup.rundir.records import Record
from rampup.runs.state import Observation, State, observe, states_of

SHOWN = 20


@click.command()
@click.argument("name", required=False, shell_complete=complete_name)
@click.option("--name", "named", metavar="NAME", help="The same as NAME.")
@click.option("--all", "show_all", is_flag=True, help=f"All runs, not only the newest {SHOWN}.")
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(1),
    metavar="N",
    help=f"Only the newest N runs (default: {SHOWN}).",
)
@click.option(
    "--state",
    "wanted",
    type=click.Choice(list(output.STATE_COLOURS)),
    help="Only runs in this state.",
)
@study_option("Only the runs of this study, with the settings that it varies.")
@click.option(
    "--columns",
    metavar="A,B,...",
    shell_complete=complete_columns,
    help="Compare settings, resources and metrics: lr,nodes,val_accuracy.",
)
@click.option(
    "--sort",
    metavar="COLUMN",
    shell_complete=complete_columns,
    help="Sort by this column; a metric's best value comes first.",
)
@json_option
def command(
    name: str | None,
    named: str | None,
    show_all: bool,
    limit: int | None,
    wanted: str | None,
    study: str | None,
    columns: str | None,
    sort: str | None,
    as_json: bool,
) -> int:
    """List runs, newest first. NAME shows only runs of that name: a recipe, a script, --name."""
    # thousands of small objects that all live to the end: looking for garbage would take a tenth
    gc.disable()
    found = with_name(select_all(study).runs(), name or named)
    whole = show_all or wanted is not None or study is not None
    seen = [observe(run) for run in (found if whole else found[: limit or SHOWN])]
    states = states_of(seen, causes=False)
    rows = [describe_briefly(one, states[one.run.path]) for one in seen]
    rows = [row for row in rows if wanted in (None, row["state"])][:limit]
    comparison = None
    if study is not None or columns is not None or sort is not None:
        from rampup.cli.compare import compare  # it takes long to import

        runs = {str(one.run.path): one.run for one in seen}
        comparison = compare(rows, [runs[row["dir"]] for row in rows], columns, sort)
        rows = comparison.as_json(study)
    if as_json:
        output.emit_json(rows)
        return 0
    if not rows:
        output.say("no runs" + (f" that are {wanted}" if wanted else ""))
        output.next_step("rampup run digits")
        return 0
    if comparison is not None:
        comparison.show()
    else:
        show(rows)
    if study is not None:
        report_states({one.run: states[one.run.path] for one in seen})
        output.next_step(f"rampup report --study {study}")
        return 0
    if len(seen) < len(found):
        output.say(f"{len(found) - len(seen)} older ones: rampup list --all")
    output.next_step(f"rampup show {rows[0]['id']}")
    return 0


def with_name(runs: list[RunDir], name: str | None) -> list[RunDir]:
    """Keep the runs of that name; `mni*` stands for several."""
    if name is None:
        return runs
    from fnmatch import fnmatchcase

    found = [run for run in runs if fnmatchcase(find.parse_run_name(run)[0], name)]
    if runs and not found:
        known = {find.parse_run_name(run)[0] for run in runs}
        raise RunNotFound(f"no run is named {name!r}", nearest(name, known))
    return found


def show(rows: list[dict[str, Any]]) -> None:
    head = ["id", "name", "state", "age", "took", "ranks", "last"]
    table = [list(cells(row)) for row in rows]
    right = {3, 4, 5}
    if any(row["job"] for row in rows):
        head.insert(1, "job")
        for row, line in zip(rows, table, strict=True):
            line.insert(1, row["job"] or "-")
        right = {4, 5, 6}
    output.table(head, table, right=frozenset(right))


def describe_briefly(seen: Observation, state: State) -> dict[str, Any]:
    run, attempt, facts = seen
    name, created = find.parse_run_name(run)
    # the directory of most runs is not read a second time
    several = attempt is not None and attempt.number > 1
    earlier = run.attempts()[-2::-1] if several else []
    return {
        "id": run.id,
        "dir": str(run.path),
        "name": name,
        "state": state.name,
        "as_of_s": state.as_of_s,
        "job": find_job(seen),
        "created": created,
        "attempts": len(earlier) + 1 if attempt else 0,
        "wall_s": total_s(seen, earlier) if state.ended else None,
        "ranks": facts.get("world_size"),
        "metrics": last_metrics(attempt, earlier) if attempt else {},
    }


def find_job(seen: Observation) -> str | None:
    """Return the newest job of a run; what a process of this machine runs has none."""
    if "job" in seen.facts or "pid" in seen.facts:
        return seen.facts.get("next_job") or seen.facts.get("job")
    jobs = seen.run.jobs()
    return jobs[-1] if jobs else None


def total_s(seen: Observation, earlier: list[AttemptDir]) -> float | None:
    """Return the seconds over all attempts. `look` has read the newest; most runs have no other."""
    last = attempt_duration_s(seen.attempt, seen.facts) if seen.attempt else None
    if not earlier:
        return last
    known = [seconds for it in earlier if (seconds := attempt_duration_s(it, it.facts)) is not None]
    return sum(known) + (last or 0.0) if known else last


def last_metrics(newest: AttemptDir, earlier: list[AttemptDir]) -> Record:
    """Return the metrics of the newest attempt that has written some."""
    found = newest.last_metrics()
    while not found and earlier:
        newest, *earlier = earlier
        found = newest.last_metrics()
    return found


def cells(row: dict[str, Any]) -> tuple[str, ...]:
    created, wall, metrics = row["created"], row["wall_s"], row["metrics"]
    chosen = headline(metrics)
    shown = [f"{key} {output.number(value)}" for key, value in metrics.items() if key in chosen]
    return (
        row["id"],
        row["name"],
        output.paint_state(row["state"], state_words(row)),
        age(clocks.age(created)) if created else "?",
        output.duration(wall) if wall is not None else "-",
        str(row["ranks"] or "-"),
        "  ".join(shown),
    )


def state_words(row: dict[str, Any]) -> str:
    several = f", attempt {row['attempts']}" if row["attempts"] > 1 else ""
    old = f", {age(row['as_of_s'])} ago" if row["as_of_s"] is not None else ""
    return f"{row['state']}{several}{old}"


def headline(metrics: dict[str, Any]) -> tuple[str, ...]:
    """Choose at most two: what people look for first."""
    validated = [key for key in metrics if key.startswith("val_")]
    losses = [key for key in metrics if "loss" in key]
    return ("epoch", *sorted(validated or losses)[:1])


def age(seconds: float) -> str:
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
