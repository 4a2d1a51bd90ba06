"""Metric rows as a table: one line per row, a column for every metric that any of the runs has.

A `Tracker` of `rampup export`; without a file, or with `-`, it writes to stdout.
"""

import csv
import io
import re
import shlex
import sys
from collections.abc import Container, Sequence
from pathlib import Path
from typing import Any, TextIO

import msgspec

from rampup.core.harmless import escape_line
from rampup.export.tracker import Sent, Source, Target
from rampup.rundir.records import write_user_file

PACKAGES: tuple[str, ...] = ()
OPTIONS: tuple[str, ...] = ("out",)
CHANGED = ""
FIRST = ("step", "epoch")
FORMULA = ("=", "+", "-", "@")
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
RUN = "run"
"""The column that says which run a row belongs to."""


def destination(target: Target) -> str:
    return "stdout" if target.out in (None, Path("-")) else str(target.out)


def next_command(where: str, sent: Sequence[Sent]) -> str:
    return f"column -s, -t {shlex.quote(where)} | less -S"


def export(sources: Sequence[Source], target: Target) -> list[Sent]:
    where = destination(target)
    if target.out is None or where == "stdout":
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
    lines.writerow([RUN, *(tame(column_title(name, names)) for name in columns), "t"])
    for source in sources:
        lines.writerows(
            [tame(source.id), *(cell(row.get(name)) for name in (*columns, "t"))]
            for row in source.rows
        )


def tame(text: str) -> str:
    """Return a text as a cell that is nothing but text: a spreadsheet calculates what begins like a
    formula, and a terminal obeys commands."""
    text = escape_line(text)
    is_formula = text.startswith(FORMULA) and not NUMBER.fullmatch(text)
    return f"'{text}" if is_formula else text


def column_title(name: str, names: Container[str]) -> str:
    """Return the title of a metric's column. One with the name of our own column gets another."""
    if name != RUN:
        return name
    found = f"metric_{name}"
    while found in names:
        found += "_"
    return found


def cell(value: Any) -> Any:
    """Return a number as it was written; empty for what is null or not in this row."""
    if value is None:
        return value
    if isinstance(value, str):
        return tame(value)
    return msgspec.json.encode(value).decode() if isinstance(value, bool | list | dict) else value
