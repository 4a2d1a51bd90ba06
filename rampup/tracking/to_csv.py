"""Metric rows as a table: one line per row, a column for every metric that any of the runs has."""

import csv
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

import msgspec

from rampup.errors import Refused
from rampup.tracking.source import Sent, Source, Target

PACKAGES: tuple[str, ...] = ()
FIRST = ("step", "epoch")


def destination(target: Target) -> str:
    return "stdout" if target.out is None else str(target.out)


def export(sources: Sequence[Source], target: Target) -> list[Sent]:
    where = destination(target)
    if target.out is None:
        write(sources, sys.stdout)
    else:
        write_whole(sources, target.out)
    return [Sent(source.id, where, len(source.rows), len(source.rows), True) for source in sources]


def write_whole(sources: Sequence[Source], out: Path) -> None:
    """The file appears whole or not at all; one that is there is replaced."""
    beside = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        with open(beside, "w", encoding="utf-8", errors="replace", newline="") as file:
            write(sources, file)
        os.replace(beside, out)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise Refused(f"can't write {out}: {error.strerror}", "--out FILE, in a directory that you can write") from None


def write(sources: Sequence[Source], file: TextIO) -> None:
    names = dict.fromkeys(name for source in sources for row in source.rows for name in row if name != "t")
    columns = sorted(names, key=lambda name: name not in FIRST)
    lines = csv.writer(file, lineterminator="\n")
    lines.writerow(["run", *columns, "t"])
    for source in sources:
        lines.writerows([source.id, *(cell(row.get(name)) for name in (*columns, "t"))] for row in source.rows)


def cell(value: Any) -> Any:
    """A number as it was written; empty for what is null or not in this row."""
    if value is None or isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode() if isinstance(value, bool | list | dict) else value
