"""The rows of a run as a table that fits a terminal.

Rank 0 writes `epoch=3/20 step=300 train_loss=0.07` into its log, for grep and for Slurm's log. On a
terminal follow.py hands these lines to a RowTable. Your own loop writes such a line only twice a
minute: its epochs are read from metrics.jsonl. Columns that do not fit are left out; all of them are
in that file.
"""

import json
import re
from typing import Any

from rampup.cli import output, width
from rampup.core.metrics import PLACE, is_number, lower_is_better

ROW = re.compile(r"(?:epoch=\S+ )?step=\d+(?: [^=]+=\S+)*")
FIELD = re.compile(r"(?:^| )([^=]+)=(\S+)")
EPOCH = re.compile(rb'(?<!\\)"epoch":\s*(\d+)(?:\.0)?[,}]')
"""A whole epoch in a line of metrics.jsonl."""
NAMES = {"samples_s": "samples/s", "epoch_s": "took", "eta_s": "left"}
"""What people read in place of the names for machines."""
LONGEST_NAME = 20
NARROWEST = 6
LOSS = len("1.234e-05")
"""A loss gets shorter and longer while it falls: its column has room from the beginning."""
RATE = len("0.01234")
HEADER_EVERY = 25
"""So many rows below a header it is repeated."""
GAP = "  "

Row = dict[str, str]


def parse_row(line: str) -> Row | None:
    """Return the fields of a line that rank 0 wrote about an epoch or a step; None for any other."""
    if not line.startswith(("epoch=", "step=")) or not ROW.fullmatch(line):
        return None
    found = dict(FIELD.findall(line))
    if "epoch" in found:
        del found["step"]
    return found


class EpochRows:
    """The last row of each epoch of your own loop, from what is written to metrics.jsonl. A loop may
    write a thousand rows in a second: only those that are shown are parsed."""

    def __init__(self) -> None:
        self.rest = self.newest = self.epoch = b""

    @property
    def last(self) -> dict[str, Any] | None:
        """The newest row; its epoch may continue."""
        return parse_metrics(self.newest)

    def add(self, data: bytes) -> list[dict[str, Any]]:
        """Take what was written, and return the last row of every epoch that has ended."""
        lines, _, self.rest = (self.rest + data).rpartition(b"\n")
        ended = []
        for line in lines.split(b"\n"):
            found = EPOCH.search(line)
            if found is None:
                continue
            if found[1] != self.epoch:
                ended.append(self.newest)
            self.epoch, self.newest = found[1], line
        return [row for line in ended if (row := parse_metrics(line)) is not None]


def parse_metrics(line: bytes) -> dict[str, Any] | None:
    """Return a row of metrics.jsonl that belongs to a whole epoch; None for any other."""
    try:
        row = json.loads(line)
    except ValueError:
        return None
    return row if isinstance(row, dict) and is_number(row.get("epoch")) else None


def format_epoch(row: dict[str, Any], epochs: str) -> Row:
    """Return a row of metrics as rank 0 would write it; `epochs` is their number, or empty."""
    number = f"{row['epoch']:g}"
    found = {"epoch": f"{number}/{epochs}" if epochs else number}
    for name, value in row.items():
        if name != "epoch" and name not in PLACE:
            found[name] = format_value(value)
    return found


def format_value(value: Any) -> str:
    if not is_number(value):
        return "nan" if value is None else str(value)
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def is_within_epoch(row: Row) -> bool:
    """Tell whether an engine wrote the row in the middle of an epoch, as a sign of life in a log."""
    return "epoch_s" not in row and not any(key.startswith("val_") for key in row)


def clock_time(seconds: float) -> str:
    """Write 0:07, 12:30 or 1:02:03."""
    minutes, rest = divmod(max(0, round(seconds)), 60)
    if minutes < 60:
        return f"{minutes}:{rest:02d}"
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"


class RowTable:
    """The table of one run. It keeps the columns and the best value that it has seen."""

    def __init__(self, monitor: Any, mode: Any) -> None:
        self.monitor = monitor if isinstance(monitor, str) else ""
        self.mode = mode if isinstance(mode, str) else "auto"
        self.widths: dict[str, int] = {}
        """Of every column that any row had, shown or not."""
        self.shown: list[str] = []
        self.below_header = 0
        self.best: float | None = None

    def note(self, row: Row) -> bool:
        """Remember the value of the monitored metric, and return whether it is the best so far."""
        self.monitor = self.monitor or choose_monitor(row)
        try:
            value = float(row[self.monitor])
        except (KeyError, ValueError):
            return False
        lower = lower_is_better(self.monitor, self.mode)
        is_best = self.best is None or (value < self.best if lower else value > self.best)
        if is_best and value == value:
            self.best = value
        return is_best and value == value

    def format(self, row: Row, is_best: bool, room: int, stream: Any) -> list[str]:
        """Return the line of a row, and a header above it where one is needed."""
        cells = {key: format_cell(key, value) for key, value in row.items()}
        if self.monitor in cells:
            cells[self.monitor] += "*" if is_best else " "
        for key, cell in cells.items():
            self.widths[key] = max(self.widths.get(key, 0), least_width(key, cell))
        shown = self._choose(room)
        lines = []
        if shown != self.shown or self.below_header >= HEADER_EVERY:
            self.shown, self.below_header = shown, 0
            lines.append(
                output.paint(
                    self._line({key: format_name(key) for key in shown}, room), "1", stream
                )
            )
        if is_best:
            padded = width.pad(cells[self.monitor], self.widths[self.monitor], right=True)
            cells[self.monitor] = output.paint(padded, output.BOLD, stream)
        self.below_header += 1
        return [output.tame(line) for line in (*lines, self._line(cells, room))]

    def _line(self, cells: Row, room: int) -> str:
        padded = [
            width.pad(cells.get(key, "-"), self.widths[key], right=True) for key in self.shown
        ]
        line = GAP.join(padded)
        return line if width.measure(line) <= room else width.shorten(line, room)

    def _choose(self, room: int) -> list[str]:
        """Return the columns that fit, in the order of the rows."""
        shown = sorted(self.widths, key=lambda key: key in NAMES)  # a sort that keeps the order
        for key in sorted(shown, key=self._weight):
            if sum(self.widths[each] + len(GAP) for each in shown) - len(GAP) <= room:
                break
            if len(shown) > 1:
                shown.remove(key)
        return shown

    def _weight(self, key: str) -> int:
        """Return how much a column matters: the least is left out first."""
        if key in ("epoch", "step"):
            return 9
        if key == self.monitor:
            return 8
        known = {"train_loss": 7, "loss": 7, "val_loss": 6, "eta_s": 5, "samples_s": 3}
        return known.get(key, {"epoch_s": 0, "lr": 1}.get(key, 4 if key.startswith("val_") else 2))


def choose_monitor(row: Row) -> str:
    """Return the metric that people look at first, where the run does not name one."""
    validated = sorted(key for key in row if key.startswith("val_"))
    losses = sorted(key for key in row if "loss" in key)
    return next(iter([*validated, *losses]), "")


def format_name(key: str) -> str:
    return width.shorten_middle(NAMES.get(key, key), LONGEST_NAME)


def least_width(key: str, cell: str) -> int:
    """Return how wide a column must be for this cell and for those that are to come."""
    last = cell.rpartition("/")[2]
    later = f"{last}/{last}" if key == "epoch" and last != cell else cell
    usual = LOSS if "loss" in key else RATE if key == "lr" else NARROWEST
    usual += cell[-1:] in ("*", " ")  # the mark of the best
    return max(usual, width.measure(format_name(key)), width.measure(later))


def format_cell(key: str, value: str) -> str:
    try:
        number = float(value)
    except ValueError:
        return value
    if key == "eta_s":
        return clock_time(number)
    if key == "epoch_s":
        return output.duration(number)
    return f"{number:,.0f}" if key == "samples_s" and number >= 1000 else value
