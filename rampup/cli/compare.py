"""Runs side by side, by their settings and metrics: `rampup list --study`, `--columns`, `--sort`,
and the table of all points in the report of a study.

Called by list.py and report.py, which import it only where it is needed: rampup.study takes long to
import.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from rampup.cli import output
from rampup.cli.list import age, describe_briefly, state_words
from rampup.core.metrics import is_number
from rampup.rundir import clocks, find
from rampup.rundir.files import RunDir
from rampup.rundir.records import Record
from rampup.runs.state import observe, states_of
from rampup.study import columns as side_by_side
from rampup.study.members import Study

if TYPE_CHECKING:
    from rampup.report.tables import StudyTable

DRAWN = 12
"""So many curves can be told apart."""
FIRST = ("id", "state")
"""Columns that are always shown."""
OWN = ("id", "name", "state", "attempts", "ranks", "created")
"""What `list` knows of a run and what is a column under the same name."""


class Row(Struct, frozen=True):
    """A run as `list` describes it, and all that can be a column."""

    run: RunDir
    facts: dict[str, Any]
    config: Record
    values: dict[str, Any]


class Comparison(Struct, frozen=True):
    """Rows in their order, and the names of the columns to show."""

    rows: list[Row]
    names: list[str]
    unvaried: list[str] = []
    """Settings that differ within the study, and that it does not vary."""

    def as_json(self, study: str | None) -> list[dict[str, Any]]:
        found = []
        for row in self.rows:
            facts = dict(row.facts) if study is None else {**row.facts, "study": study}
            facts["columns"] = {name: row.values.get(name) for name in self.names}
            found.append(facts)
        return found

    def first(self) -> tuple[str, ...]:
        """Return the columns that are always shown; the name only where it differs."""
        differ = len({row.facts["name"] for row in self.rows}) > 1
        return ("id", "name", "state") if differ else FIRST

    def show(self) -> None:
        listed = [*(name for name in self.first() if name not in self.names), *self.names]
        right = [
            index
            for index, name in enumerate(listed)
            if all(is_number_or_empty(row, name) for row in self.rows)
        ]
        table = [[cell(row, name) for name in listed] for row in self.rows]
        output.table(listed, table, right=frozenset(right))
        if self.unvaried:
            output.say(f"note: {differ_words(self.unvaried)}")


def compare(
    facts: Sequence[dict[str, Any]], runs: Sequence[RunDir], columns: str | None, sort: str | None
) -> Comparison:
    """Compare runs by the columns that were asked for, or by those that a study varies."""
    rows = [make_row(run, each) for run, each in zip(runs, facts, strict=True)]
    asked = [name.strip() for name in (columns or "").split(",")]
    names = usual_columns(rows) if columns is None else [name for name in asked if name]
    side_by_side.check([*names, *([sort] if sort else [])], [row.values for row in rows])
    return Comparison(sort_rows(rows, sort) if sort else rows, names, find_unvaried(rows))


def make_row(run: RunDir, facts: dict[str, Any]) -> Row:
    config = run.used_config
    own = {key: facts[key] for key in OWN}
    own["took"] = facts["wall_s"]
    own["age"] = clocks.age(facts["created"]) if facts["created"] else None
    return Row(run, facts, config, side_by_side.values_of(own, config, facts["metrics"]))


def list_columns(most: int) -> list[str]:
    """Return the columns that the newest runs have, without those of a dotted name."""
    seen = [observe(run) for run in find.all_runs()[:most]]
    states = states_of(seen, causes=False)
    rows = [make_row(one.run, describe_briefly(one, states[one.run.path])) for one in seen]
    return sorted({name for row in rows for name in row.values if "." not in name})


def headline(rows: Sequence[Row]) -> str | None:
    monitors = [row.config.get("train", {}).get("monitor") for row in rows]
    return side_by_side.headline([row.facts["metrics"] for row in rows], monitors)


def usual_columns(rows: Sequence[Row]) -> list[str]:
    """Return what a study varies, and the metric that counts."""
    metric = headline(rows)
    keys = [*find_varied(rows), *find_unvaried(rows)]
    return [*keys, *([metric] if metric else []), "took"]


def find_varied(rows: Sequence[Row]) -> list[str]:
    return side_by_side.find_varied([row.run.run.get("point", {}) for row in rows])


def find_unvaried(rows: Sequence[Row]) -> list[str]:
    """Return the settings that differ between the runs of one study, besides those that it
    varies."""
    studies = {row.run.run.get("study") for row in rows}
    if len(studies) != 1 or studies == {None}:
        return []
    varied = {key.removeprefix("train.").removeprefix("resources.") for key in find_varied(rows)}
    return [
        key for key in side_by_side.differing([row.config for row in rows]) if key not in varied
    ]


def differ_words(names: Sequence[str]) -> str:
    return f"runs of this study also differ in {', '.join(names)}, which the study does not vary"


def sort_rows(rows: Sequence[Row], name: str) -> list[Row]:
    """Sort numbers before words, and those before nothing; of a metric the best comes first, of a
    setting the smallest."""
    numbers: list[Row] = []
    words: list[Row] = []
    empty: list[Row] = []
    for row in rows:
        value = row.values.get(name)
        kind = numbers if is_number(value) else empty if value is None else words
        kind.append(row)
    descending = side_by_side.more_is_better(name, [row.config for row in rows])
    numbers.sort(key=lambda row: row.values[name], reverse=descending)
    words.sort(key=lambda row: str(row.values[name]))
    return [*numbers, *words, *empty]


def is_number_or_empty(row: Row, name: str) -> bool:
    return row.values.get(name) is None or is_number(row.values[name])


def cell(row: Row, name: str) -> str:
    value = row.values.get(name)
    if name == "state":
        return state_words(row.facts)
    if value is None:
        return "-"
    if name == "took":
        return output.duration(value)
    if name == "age":
        return age(value)
    return " ".join(output.number(value).split())


def study_report(study: Study) -> tuple[list[RunDir], "StudyTable"]:
    """Return the runs that the report of a study draws, and the table of all."""
    from rampup.report.tables import StudyTable

    seen = [observe(run) for run in study.runs()]
    states = states_of(seen, causes=False)
    rows = [make_row(one.run, describe_briefly(one, states[one.run.path])) for one in seen]
    metric, names = headline(rows), usual_columns(rows)
    ordered = sort_rows(rows, metric) if metric else rows
    which = f"the best by {metric}" if metric else "the newest"
    if len(rows) <= DRAWN:
        about = f"{which.capitalize()} first."
    else:
        about = f"{DRAWN} of {len(rows)} runs are drawn: {which}; they are listed first."
    listed = [*FIRST, *names]
    table = [[cell(row, column) for column in listed] for row in ordered]
    drawn = [row.run for row in ordered[:DRAWN]]
    return drawn, StudyTable(study.name, about, listed, table)
