"""`rampup list`: the runs of every root that was ever used, or of one study, the newest first.

With --study, --columns or --sort they are compared side by side: see compare.py. With --watch the
same is drawn again and again: see watch.py.
"""

import gc
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import click
from msgspec import Struct

from rampup.cli import output, width
from rampup.cli.options import complete_columns, complete_name, json_option, study_option
from rampup.cli.selection import cause_in_one_line, report_states, select_all
from rampup.core.harmless import escape_line
from rampup.core.metrics import is_number, share_done
from rampup.errors import RunNotFound, nearest
from rampup.rundir import clocks, find
from rampup.rundir.files import AttemptDir, RunDir
from rampup.rundir.history import attempt_duration_s
from rampup.rundir.records import Record, read_json
from rampup.runs.apart import find_apart
from rampup.runs.state import UNREADABLE, Observation, State, observe, states_of

if TYPE_CHECKING:
    from rampup.cli.compare import Comparison

SHOWN = 20
LONGEST_NAME = 15
"""Of the metric in the last column."""


NUMBERS = ("age", "took", "ranks")
SAYS_NOTHING = {"job": ("-",), "ranks": ("-", "1")}
"""Values of columns that are left out where no run has another."""
WAITS, FAILED = ("pending", UNREADABLE), ("failed", "timeout")


class Wanted(Struct, frozen=True):
    """What was asked for."""

    name: str | None
    show_all: bool
    limit: int | None
    state: str | None
    study: str | None
    columns: str | None
    sort: str | None


class Listing(Struct, frozen=True):
    """The runs that were found, and how many older ones were not looked at."""

    rows: list[dict[str, Any]]
    comparison: "Comparison | None"
    states: dict[RunDir, State]
    older: int


@click.command()
@click.argument("name", required=False, shell_complete=complete_name)
@click.option("--name", "named", metavar="NAME", help="Only runs of this name, as with NAME.")
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
@click.option(
    "--watch", "is_watched", is_flag=True, help="Refresh the list every few seconds until Ctrl-C."
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
    is_watched: bool,
    as_json: bool,
) -> int:
    """List runs, newest first. With NAME, only runs of that name (a recipe, a script, or --name)."""
    asked = Wanted(name or named, show_all, limit, wanted, study, columns, sort)
    if is_watched:
        from rampup.cli.watch import watch  # not for those who look once

        watch(partial(show_listing, asked), as_json)
    # thousands of small objects that all live to the end: looking for garbage would take a tenth
    gc.disable()
    if as_json:
        output.emit_json(find_runs(asked).rows)
    else:
        show_listing(asked)
    return 0


def find_runs(asked: Wanted) -> Listing:
    found = with_name(select_all(asked.study).runs(), asked.name)
    whole = asked.show_all or asked.state is not None or asked.study is not None
    seen = [observe(run) for run in (found if whole else found[: asked.limit or SHOWN])]
    by_path = states_of(seen, causes=False)
    states = {one.run: by_path[one.run.path] for one in seen}
    rows = [describe_briefly(one, states[one.run]) for one in seen]
    rows = [row for row in rows if asked.state in (None, row["state"])][: asked.limit]
    comparison = None
    if not (asked.study is None and asked.columns is None and asked.sort is None):
        from rampup.cli.compare import compare  # it takes long to import

        runs = {str(one.run.path): one.run for one in seen}
        of_rows = [runs[row["dir"]] for row in rows]
        comparison = compare(rows, of_rows, asked.columns, asked.sort)
        rows = comparison.as_json(asked.study)
    return Listing(rows, comparison, states, len(found) - len(seen))


def show_listing(asked: Wanted) -> None:
    found = find_runs(asked)
    if not found.rows:
        output.say("no runs" + (f" that are {asked.state}" if asked.state else ""))
        output.next_step("rampup run digits")
        return
    if found.comparison is not None:
        found.comparison.show()
    else:
        causes = find_causes(found)
        show([{**row, "why": causes.get(row["dir"], "")} for row in found.rows])
    if asked.study is not None:
        report_states(found.states)
        output.next_step(f"rampup report --study {asked.study}")
        return
    if found.older:
        output.say(f"{output.count(found.older, 'older run')}: rampup list --all")
    output.next_step(f"rampup show {found.rows[0]['id']}")


def find_causes(found: Listing) -> dict[str, str]:
    """Return why runs failed, or what they wait for, by their directories. Of many runs only of
    the newest, because a cause is read from logs."""
    failed = [row["dir"] for row in found.rows if row["state"] in FAILED][:SHOWN]
    shown = {}
    for run, state in found.states.items():
        if state.name in WAITS:
            shown[str(run.path)] = state.cause
        elif state.name in FAILED and str(run.path) in failed:
            shown[str(run.path)] = cause_in_one_line(run, state)
    return shown


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
    """Print the table. A job and the number of ranks have a column only where they say something."""
    cells = [cells_of(row) for row in rows]
    head = [
        name
        for name in cells[0]
        if any(row[name] not in SAYS_NOTHING.get(name, ()) for row in cells)
    ]
    right = frozenset(index for index, name in enumerate(head) if name in NUMBERS)
    output.table(head, [[row[name] for name in head] for row in cells], right)


def describe_briefly(seen: Observation, state: State) -> dict[str, Any]:
    run, attempt, facts = seen
    name, created = find.parse_run_name(run)
    # the directory of most runs is not read a second time
    several = attempt is not None and attempt.number > 1
    apart = find_apart(run, attempt, facts.get("world_size"), state.name)
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
        "running_s": running_s(facts) if state.name == "running" else None,
        "done": read_share(attempt) if attempt and state.name == "running" else None,
        "ranks": facts.get("world_size"),
        "apart": apart.ranks if apart else 0,
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


def running_s(facts: Record) -> float | None:
    """Return for how long the newest attempt has been running."""
    began = facts.get("started")
    return max(0.0, clocks.age(float(began))) if is_number(began) and began else None


def read_share(attempt: AttemptDir) -> float | None:
    """Return how much of a running one is done, 0 to 1; None where nobody knows its length."""
    return share_done(read_json(attempt.progress_file))


def last_metrics(newest: AttemptDir, earlier: list[AttemptDir]) -> Record:
    """Return the metrics of the newest attempt that has written some."""
    found = newest.last_metrics()
    while not found and earlier:
        newest, *earlier = earlier
        found = newest.last_metrics()
    return found


def cells_of(row: dict[str, Any]) -> dict[str, str]:
    """Return what is shown of a run, by column."""
    created, metrics = row["created"], row["metrics"]
    wall = row["running_s"] if row["wall_s"] is None else row["wall_s"]
    shown = [
        f"{shorten_metric(key)} {output.number(metrics[key])}"
        for key in headline(metrics)
        if key in metrics
    ]
    if row["done"] is not None:
        shown.insert(0, f"{row['done']:.0%}")
    return {
        "id": row["id"],
        "job": row["job"] or "-",
        "name": row["name"],
        "state": output.paint_state(row["state"], state_words(row)),
        "age": age(clocks.age(created)) if created else "?",
        "took": output.duration(wall) if wall is not None else "-",
        "ranks": str(row["ranks"] or "-"),
        "last": row["why"] or "  ".join(shown),
    }


@cache
def shorten_metric(name: str) -> str:
    """Return what the last column calls a metric; most runs have the same ones."""
    return width.shorten_middle(escape_line(name), LONGEST_NAME)


def state_words(row: dict[str, Any]) -> str:
    several = f", attempt {row['attempts']}" if row["attempts"] > 1 else ""
    old = f", {age(row['as_of_s'])} ago" if row["as_of_s"] is not None else ""
    alone = ", each rank alone" if row["apart"] else ""
    return f"{output.STATE_WORDS.get(row['state'], row['state'])}{several}{alone}{old}"


def headline(metrics: dict[str, Any]) -> tuple[str, ...]:
    """Choose at most two: what people look for first. The epoch comes last, where a narrow
    terminal cuts."""
    validated = [key for key in metrics if key.startswith("val_")]
    losses = [key for key in metrics if "loss" in key]
    return (*sorted(validated or losses)[:1], "epoch")


def age(seconds: float) -> str:
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
