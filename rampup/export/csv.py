"""Metric rows as a table: one line per row, a column for every metric that any of the runs has."""

import csv
import io
import sys
from collections.abc import Container, Sequence
from typing import Any, TextIO

import msgspec

from rampup.export.source import Sent, Source, Target
from rampup.rundir.records import write_user_file

PACKAGES: tuple[str, ...] = ()
FIRST = ("step", "epoch")
RUN = "run"
"""The column that tells whose row it is."""


def destination(target: Target) -> str:
    return "stdout" if target.out is None else str(target.out)


def export(sources: Sequence[Source], target: Target) -> list[Sent]:
    where = destination(target)
    if target.out is None:
        write(sources, sys.stdout)
    else:
        table = io.StringIO(newline="")
        write(sources, table)
        write_user_file(target.out, table.getvalue().encode("utf-8", "replace"))
    return [Sent(source.id, where, len(source.rows), len(source.rows), True) for source in sources]


def write(sources: Sequence[Source], file: TextIO) -> None:
    names = dict.fromkeys(
        name for source in sources for row in source.rows for name in row if name != "t"
    )
    columns = sorted(names, key=lambda name: name not in FIRST)
    lines = csv.writer(file, lineterminator="\n")
    lines.writerow([RUN, *(title(name, names) for name in columns), "t"])
    for source in sources:
        lines.writerows(
            [source.id, *(cell(row.get(name)) for name in (*columns, "t"))] for row in source.rows
        )


def title(name: str, names: Container[str]) -> str:
    """A metric may have the name of our own column: no two are to be alike."""
    if name != RUN:
        return name
    found = f"metric_{name}"
    while found in names:
        found += "_"
    return found


def cell(value: Any) -> Any:
    """A number as it was written; empty for what is null or not in this row."""
    if value is None or isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode() if isinstance(value, bool | list | dict) else value
