"""`rampup list --study`, `--columns`, `--sort`: runs side by side, by their settings and
metrics."""

import contextlib
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from rampup.cli import output
from rampup.cli.list import SHOWN, age, describe_briefly, state_words, tell_nothing
from rampup.cli.studies import tell_states
from rampup.core.metrics import is_number
from rampup.errors import SchedulerError
from rampup.rundir import find as runs
from rampup.rundir.files import RunDir, State
from rampup.rundir.records import Record
from rampup.runs.state import Seen, look, states_of
from rampup.study import columns as side_by_side
from rampup.study.members import find, find_lost_submissions

if TYPE_CHECKING:
    from rampup.report.points import Points

DRAWN = 12
"""So many curves can be told apart."""
FIRST = ("id", "state")
"""Columns that are always shown."""


class Row(Struct, frozen=True):
    """A run as `list` tells it, and all that can be a column."""

    run: RunDir
    told: dict[str, Any]
    config: Record
    values: dict[str, Any]


def compare(
    study: str | None,
    asked: str | None,
    sort: str | None,
    wanted: str | None,
    show_all: bool,
    as_json: bool,
) -> int:
    found = find(study).runs() if study is not None else runs.all_runs()
    if study is not None:
        with contextlib.suppress(SchedulerError, OSError):  # who only looks can do without
            find_lost_submissions(found)
    whole = show_all or wanted or study is not None
    seen = [look(run) for run in (found if whole else found[:SHOWN])]
    states = states_of(seen, causes=False)
    rows = [row_of(one, states[one.run.path]) for one in seen]
    rows = [row for row in rows if wanted in (None, row.told["state"])]
    names = (
        [name for it in asked.split(",") if (name := it.strip())]
        if asked is not None
        else usual(rows)
    )
    side_by_side.check([*names, *([sort] if sort else [])], [row.values for row in rows])
    rows = in_order(rows, sort) if sort else rows
    if as_json:
        points = {"study": study} if study is not None else {}
        output.emit_json(
            [
                {**row.told, **points, "columns": {name: row.values.get(name) for name in names}}
                for row in rows
            ]
        )
        return 0
    if not rows:
        return tell_nothing(wanted)
    show(rows, names)
    if study is not None:
        tell_states({one.run: states[one.run.path] for one in seen})
        output.next_step(f"rampup report --study {study}")
    else:
        if len(seen) < len(found):
            output.say(f"{len(found) - len(seen)} older ones: rampup list --all")
        output.next_step(f"rampup show {rows[0].run.id}")
    return 0


def row_of(seen: Seen, state: State) -> Row:
    told, config = describe_briefly(seen, state), seen.run.config
    own = {key: told[key] for key in ("id", "name", "state", "attempts", "ranks", "created")}
    own |= {
        "took": told["wall_s"],
        "age": time.time() - told["created"] if told["created"] else None,
    }
    return Row(seen.run, told, config, side_by_side.values_of(own, config, told["metrics"]))


def headline(rows: Sequence[Row]) -> str | None:
    monitors = [row.config.get("train", {}).get("monitor") for row in rows]
    return side_by_side.headline([row.told["metrics"] for row in rows], monitors)


def usual(rows: Sequence[Row]) -> list[str]:
    """Of a study: what it varies, and the metric that counts."""
    metric = headline(rows)
    keys = side_by_side.varied([row.run.run.get("point", {}) for row in rows])
    return [*keys, *([metric] if metric else []), "took"]


def in_order(rows: Sequence[Row], name: str) -> list[Row]:
    """Numbers before words, and those before nothing; of a metric the best first, of a setting the
    smallest."""
    values = [row.values.get(name) for row in rows]
    numbers = [row for row, value in zip(rows, values, strict=True) if is_number(value)]
    words = [
        row
        for row, value in zip(rows, values, strict=True)
        if not is_number(value) and value is not None
    ]
    nothing = [row for row, value in zip(rows, values, strict=True) if value is None]
    numbers.sort(
        key=lambda row: row.values[name],
        reverse=side_by_side.more_is_better(name, [row.config for row in rows]),
    )
    return [*numbers, *sorted(words, key=lambda row: str(row.values[name])), *nothing]


# for people ---------------------------------------------------------------------------------------


def show(rows: Sequence[Row], names: Sequence[str]) -> None:
    listed = [*(name for name in FIRST if name not in names), *names]
    right = {
        index for index, name in enumerate(listed) if all(has_number(row, name) for row in rows)
    }
    output.table(
        listed, [[cell(row, name) for name in listed] for row in rows], right=frozenset(right)
    )


def has_number(row: Row, name: str) -> bool:
    return row.values.get(name) is None or is_number(row.values[name])


def cell(row: Row, name: str) -> str:
    value = row.values.get(name)
    if name == "state":
        return state_words(row.told)
    if value is None:
        return "-"
    if name in ("took", "age"):
        return output.duration(value) if name == "took" else age(value)
    return " ".join(output.number(value).split())


# for the report -----------------------------------------------------------------------------------


def to_report(name: str) -> tuple[Path, list[RunDir], "Points"]:
    """Where the report of a study goes, which runs it draws, and the table of all."""
    from rampup.report.points import Points

    study = find(name)
    seen = [look(run) for run in study.runs()]
    states = states_of(seen, causes=False)
    rows = [row_of(one, states[one.run.path]) for one in seen]
    metric, names = headline(rows), usual(rows)
    ordered = in_order(rows, metric) if metric else rows
    which = f"the best by {metric}" if metric else "the newest"
    few = len(rows) <= DRAWN
    about = (
        f"{which.capitalize()} first."
        if few
        else f"Of {len(rows)} runs {DRAWN} are drawn: {which}, listed first."
    )
    listed = [*FIRST, *names]
    table = [[cell(row, column) for column in listed] for row in ordered]
    return (
        study.report_file,
        [row.run for row in ordered[:DRAWN]],
        Points(name, about, listed, table),
    )
