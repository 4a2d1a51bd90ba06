"""Runs side by side: what a column of `rampup list --columns` holds, for each run.

A name is a column of the list itself, a setting of [train], a resource, or a metric, in this order;
a dotted name says the table (train.lr, resources.nodes, metrics.lr). Used by `list` and by the
report of a study. `read_score` alone reads a run.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from rampup.core.metrics import is_number, lower_is_better
from rampup.errors import Refused
from rampup.rundir.files import RunDir
from rampup.rundir.records import Record
from rampup.runs.summary import NOT_METRICS, best_of, merged


class Score(Struct, frozen=True):
    """How good a run is, by the metric that counts."""

    metric: str
    value: float


TABLES = ("train", "checkpoint", "resources", "cluster", "metrics")
OWN = ("id", "name", "state", "attempts", "ranks", "created", "took", "age")
"""Columns of the list itself."""
BARE = ("metrics", "resources", "train")
"""Tables whose names need no dot; the later wins."""
VALIDATED = ("val_", "val/", "valid_", "valid/", "eval_", "eval/")
"""Beginnings of the names of what a validation measures."""
DIFFERING = ("train", "checkpoint", "resources")
GROUPS = {"train": "settings"}
"""What people call a table."""


def values_of(own: Mapping[str, Any], config: Record, metrics: Record) -> dict[str, Any]:
    """All that can be a column, by every name that it has."""
    tables = {**{name: config.get(name, {}) for name in TABLES}, "metrics": metrics}
    dotted = {
        f"{name}.{key}": value for name, table in tables.items() for key, value in table.items()
    }
    bare = {key: value for name in BARE for key, value in tables[name].items()}
    return {**dotted, **bare, **own}


def check(names: Iterable[str], rows: Sequence[Mapping[str, Any]]) -> None:
    """Every name is a column of some run."""
    there = {key for row in rows for key in row}
    for name in names:
        if rows and name not in there:
            raise Refused(f"none of these runs has a column {name!r}", suggest(name, there))


def suggest(name: str, there: Iterable[str]) -> str:
    """The columns with a similar name, or else all of them in groups."""
    import difflib  # only a mistake pays for it

    known = set(there)
    listed = known if "." in name else {key for key in known if "." not in key}
    close = difflib.get_close_matches(name, sorted(listed), n=5, cutoff=0.6)
    if close:
        return f"close: {', '.join(close)}"
    groups = {"of the list": sorted(known & set(OWN))}
    for table in TABLES:
        found = [key for key in known if key.startswith(f"{table}.")]
        bare = table in BARE
        names = [key.removeprefix(f"{table}.") if bare else key for key in found]
        groups[GROUPS.get(table, table)] = sorted(names)
    return "; ".join(f"{group}: {', '.join(names)}" for group, names in groups.items() if names)


def differing(configs: Sequence[Record]) -> list[str]:
    """The columns of settings that are not the same in all runs."""
    found = []
    for table in DIFFERING:
        tables = [config.get(table, {}) for config in configs]
        for key in dict.fromkeys(key for each in tables for key in each):
            if any(each.get(key) != tables[0].get(key) for each in tables):
                found.append(key if table in BARE else f"{table}.{key}")
    return found


def find_varied(points: Sequence[Mapping[str, Any]]) -> list[str]:
    """The settings that a study varies."""
    return list(dict.fromkeys(key for point in points for key in point))


def headline(metrics: Iterable[Record], monitors: Iterable[Any]) -> str | None:
    """The metric that people look for first: what the runs monitor, else one of a validation, else
    a loss."""
    there = dict.fromkeys(key for row in metrics for key in row if key not in NOT_METRICS)
    asked = [name for name in monitors if isinstance(name, str) and name in there]
    tested = sorted(key for key in there if key.startswith(VALIDATED))
    return next(iter([*asked, *tested, *sorted(key for key in there if "loss" in key)]), None)


def read_score(run: RunDir) -> Score | None:
    """Return the best value of the metric that the run monitors, else the last of the one that
    people look for first."""
    history = run.history()
    best = best_of(run, history)
    if best is not None and is_number(best["value"]):
        return Score(best["metric"], best["value"])
    last = merged(history)
    metric = headline([last], [])
    return Score(metric, last[metric]) if metric and is_number(last[metric]) else None


def more_is_better(name: str, configs: Iterable[Record]) -> bool:
    """Whether it is a metric of which more is better. Of settings nobody knows."""
    bare = name.removeprefix("metrics.")
    is_setting = bare == name and any(
        name in config.get(table, {}) for config in configs for table in BARE
    )
    return not (is_setting or name in OWN or "." in bare or lower_is_better(bare, "auto"))
