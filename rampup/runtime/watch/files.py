"""Metrics in files that a program writes: TensorBoard's event files, a CSV such as Lightning's, and
trainer_state.json of transformers.

Each reader belongs to one file, is asked again as the file grows, and yields what is new. What is
torn waits for the rest. Which files may be read at all decides ownership.py. Nothing here writes.
"""

import csv
import io
import json
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from rampup.core import tfevents
from rampup.runtime.watch.log import Found, read_number, read_step

EVENTS_NAME, CSV_NAME, STATE_NAME = "tfevents", "metrics.csv", "trainer_state.json"
LARGEST_TABLE = 64 * 2**20
"""Bytes of a CSV or of trainer_state.json; a larger one is not read."""
LARGEST_READ = 16 * 2**20
SPLITS = ("train", "training", "validation", "valid", "val", "test", "eval")
"""Folders with such names hold the same tags: they become a part of the metric's name."""


class Reader(Protocol):
    def read(self) -> Iterator[Found]:
        """Yield what is new in the file."""


class EventFile:
    """An event file of TensorBoard: its scalars, event by event."""

    def __init__(self, path: Path, prefix: str) -> None:
        self._path, self._prefix, self._at = path, prefix, 0

    def read(self) -> Iterator[Found]:
        try:
            with open(self._path, "rb") as file:
                while True:
                    file.seek(self._at)
                    size = 0
                    for record in tfevents.read_records(file.read(LARGEST_READ)):
                        size += len(record) + 16
                        yield from self._scalars(record)
                    if not size:
                        return
                    self._at += size
        except OSError:  # removed, or not ours to read
            return

    def _scalars(self, record: bytes) -> Iterator[Found]:
        try:
            step, scalars = tfevents.read_scalars(record)
        except (ValueError, struct.error):
            return
        if scalars and step >= 0:
            yield Found({f"{self._prefix}{tag}": value for tag, value in scalars}, step)


class Names:
    """What the tags of a folder are called: with several folders, the same tag is not the same
    metric."""

    def __init__(self) -> None:
        self._first: Path | None = None

    def prefix_of(self, file: Path) -> str:
        folder = file.parent
        if folder.name in SPLITS:
            return f"{folder.name}/"
        self._first = self._first or folder
        if folder == self._first:
            return ""
        inside = folder.is_relative_to(self._first)
        return f"{folder.relative_to(self._first) if inside else folder.name}/"


class Table:
    """A file that is written again as a whole: rows that were there before are known."""

    def __init__(self, path: Path, known: set[Any]) -> None:
        self._path, self._known = path, known
        self._stamp: tuple[int, int] | None = None

    def read(self) -> Iterator[Found]:
        try:
            found = os.stat(self._path)
            stamp = (found.st_size, found.st_mtime_ns)
            if stamp == self._stamp or found.st_size > LARGEST_TABLE:
                return
            text = self._path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return
        self._stamp = stamp
        for row in self.rows(text):
            if row.values and (key := identify(row)) not in self._known:
                self._known.add(key)
                yield row

    def rows(self, text: str) -> Iterator[Found]:
        raise NotImplementedError


def identify(row: Found) -> Any:
    """Return what is the same for the same row, written again."""
    return row.step, tuple(sorted(row.values.items()))


class CsvFile(Table):
    """The metrics.csv of Lightning's CSVLogger, and others with a column `step` or `epoch`."""

    def rows(self, text: str) -> Iterator[Found]:
        whole = text[: text.rfind("\n") + 1]
        for line in csv.DictReader(io.StringIO(whole)):
            if not {"step", "epoch"} & line.keys():
                return
            step = read_step(line.pop("step", None))
            numbers = {name: read_number(value) for name, value in line.items() if name}
            values = {name: one for name, one in numbers.items() if one is not None}
            if values.keys() - {"epoch"}:
                yield Found(values, step)


class TrainerState(Table):
    """The history of losses in a checkpoint of transformers."""

    def rows(self, text: str) -> Iterator[Found]:
        try:
            state = json.loads(text)
        except (ValueError, RecursionError):  # it is being written
            return
        history = state.get("log_history") if isinstance(state, dict) else None
        for row in history if isinstance(history, list) else ():
            if isinstance(row, dict):
                numbers = {name: read_number(value) for name, value in row.items()}
                step = read_step(numbers.pop("step", None))
                yield Found({key: it for key, it in numbers.items() if it is not None}, step)
