"""The screen of somebody who follows a run: its output, and one line below that moves.

The line shows how far the start is (ranks that joined, imports, data), then a progress bar, or the
last values where nobody knows how long the loop is. Only a terminal gets it. It is drawn once a
second, by this process alone: the run does not know that somebody follows it.
"""

import os
import sys
import time
from collections import deque
from typing import Any

from rampup.cli import output, width
from rampup.cli.rows import (
    EpochRows,
    Row,
    RowTable,
    clock_time,
    format_epoch,
    is_within_epoch,
    parse_row,
)
from rampup.core.harmless import escape_line
from rampup.core.metrics import is_number, progress_of

DRAW_EVERY_S = 1.0
ROW_EVERY_S = 0.9
"""Rows that come faster are thinned; the last one is always shown."""
RATE_OVER_S = 60.0
LONGEST_BAR, SHORTEST_BAR = 40, 8
CLEAR = "\r\x1b[K"


class MovingLine:
    """The last line of the terminal, which renews itself."""

    def __init__(self) -> None:
        self.can_move = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self.is_drawn = False
        self.drawn_at = 0.0

    def is_due(self) -> bool:
        return self.can_move and time.monotonic() - self.drawn_at >= DRAW_EVERY_S

    def draw(self, text: str) -> None:
        room = width.columns(sys.stderr) or width.DEFAULT_COLUMNS
        # the last column stays free: some terminals wrap as soon as it is written
        sys.stderr.write(CLEAR + width.shorten(escape_line(text), room - 1))
        sys.stderr.flush()
        self.is_drawn, self.drawn_at = True, time.monotonic()

    def clear(self) -> None:
        if self.is_drawn:
            sys.stderr.write(CLEAR)
            sys.stderr.flush()
            self.is_drawn, self.drawn_at = False, 0.0


class Pace:
    """How fast a run is, from the heartbeats of its last minute."""

    def __init__(self) -> None:
        self.seen: deque[tuple[float, float]] = deque()

    def note(self, t: float, done: float) -> None:
        if self.seen and self.seen[-1] == (t, done):
            return
        if self.seen and done < self.seen[-1][1]:  # another attempt
            self.seen.clear()
        self.seen.append((t, done))
        while len(self.seen) > 2 and t - self.seen[1][0] > RATE_OVER_S:
            self.seen.popleft()

    def per_s(self) -> float | None:
        if not self.seen:
            return None
        (t0, first), (t1, last) = self.seen[0], self.seen[-1]
        return (last - first) / (t1 - t0) if t1 > t0 and last > first else None


class Progress:
    """The text of the moving line while a run trains, from the heartbeat of its rank 0."""

    def __init__(self) -> None:
        self.pace = Pace()
        self.widest = 0
        """Of the numbers behind the bar: they change, and the bar keeps its length."""

    def format(self, beat: dict[str, Any], room: int) -> str:
        done, total = progress_of(beat)
        t = beat.get("t")
        if done is not None and is_number(t):
            self.pace.note(float(t or 0), done)
        facts = format_facts(beat)
        if total is None or done is None:
            rate = self.pace.per_s()
            speed = [f"{output.number(rate)} steps/s"] if rate else []
            return width.join_fitting("", [format_place(beat), *facts, *speed], room)
        share = min(1.0, done / total)
        ends = [f"{share:4.0%}", *facts, f"left {self._left(total - done)}"]
        place = format_place(beat)
        tail = fit_numbers(place, ends, room)
        self.widest = max(self.widest, width.measure(tail))
        return format_bar(place, share, tail, self.widest, room)

    def _left(self, more: float) -> str:
        rate = self.pace.per_s()
        if more <= 0:
            return clock_time(0)
        return clock_time(more / rate) if rate else "-:--"


def format_place(beat: dict[str, Any]) -> str:
    for key in ("epoch", "step"):
        value, last = beat.get(key), beat.get(f"{key}s")
        if is_number(value) and (key == "step" or value or last):
            return f"{key} {value:g}/{last:g}" if is_number(last) else f"{key} {value:g}"
    return "running"


def format_facts(beat: dict[str, Any]) -> list[str]:
    facts = {"loss": beat.get("train_loss"), **(beat.get("metrics") or {})}
    found = [f"{name} {output.number(value)}" for name, value in facts.items() if is_number(value)]
    if beat.get("samples_s"):
        found.append(f"{beat['samples_s']:,.0f} samples/s")
    return found


def fit_numbers(place: str, numbers: list[str], room: int) -> str:
    """Join the numbers behind the bar. If they do not fit, the inner ones are left out: the share
    and the time left stay."""
    shown = list(numbers)
    while len(shown) > 2 and width.measure("  ".join([place, *shown])) + SHORTEST_BAR + 1 > room:
        del shown[-2]
    return "  ".join(shown)


def format_bar(place: str, share: float, tail: str, widest: int, room: int) -> str:
    """Return the bar between its label and the numbers, which may take `widest` columns."""
    rest = room - width.measure(place) - 2
    length = min(LONGEST_BAR, rest - widest)
    if length < SHORTEST_BAR:
        length = min(LONGEST_BAR, rest - width.measure(tail))
    if length < SHORTEST_BAR:
        return f"{place}  {tail}"
    can_draw = "utf" in (sys.stderr.encoding or "").lower()
    full, empty = ("━", "─") if can_draw else ("#", "-")
    done = round(share * length)
    return f"{place} {full * done}{empty * (length - done)} {tail}"


class Screen:
    """Where rank 0's output goes: stdout, or stderr when stdout is for JSON. On a terminal rows
    become a table, and the moving line stays below."""

    def __init__(self, as_json: bool, train: dict[str, Any], is_engine: bool) -> None:
        self.stream = sys.stderr if as_json else sys.stdout
        self.is_terminal = self.stream.isatty()
        self.line, self.progress = MovingLine(), Progress()
        self.table = RowTable(train.get("monitor"), train.get("monitor_mode"))
        self.is_engine = is_engine
        """Whether rampup's own engine trains: then all of the output is whole lines."""
        self.began = time.monotonic()
        self.rest = b""
        self.held: tuple[Row, bool] | None = None
        """A row that came too early, and whether it was the best so far."""
        self.row_due = 0.0
        self.epochs, self.of_epochs = EpochRows(), ""
        self.first: Row | None = None
        """The first row of your own loop: its log has it at once."""
        self.is_training = self.was_used = self.closed = False

    def update(self, beat: dict[str, Any], words: str) -> None:
        """Renew the moving line: from the heartbeat, or with words about the start before it."""
        self.is_training = self.is_training or "step" in beat
        if not self.line.is_due() or (self.was_used and not self.is_training):
            return
        room = (width.columns(sys.stderr) or width.DEFAULT_COLUMNS) - 1
        if "step" in beat:
            self.line.draw(self.progress.format(beat, room))
        elif words:
            waited = clock_time(time.monotonic() - self.began)
            self.line.draw(f"{width.shorten(words, room - len(waited) - 2)}  {waited}")

    def show(self, data: bytes) -> None:
        """Pass on what rank 0 printed."""
        if not self.is_terminal:
            self._write(data)
            return
        lines, newline, self.rest = (self.rest + data).rpartition(b"\n")
        if newline:
            for line in lines.split(b"\n"):
                self._show_line(line)
        self._show_held()
        if self.is_training or self.is_engine:
            self.rest = self.rest.rpartition(b"\r")[2]  # another program's bar: ours is shown
        elif self.rest and not self.rest.startswith((b"epoch=", b"step=")):
            self._print(self.rest)
            self.rest = b""

    @property
    def wants_metrics(self) -> bool:
        """Whether epochs are read from metrics.jsonl: an engine writes each of them into its log."""
        return self.line.can_move and self.is_terminal and not self.is_engine

    def show_metrics(self, data: bytes) -> None:
        """Give each epoch of your own loop a row in the table, when it has ended."""
        for row in self.epochs.add(data):
            self._show_epoch(row)

    def say(self, words: str) -> None:
        """Print a line for people, in place of the moving one."""
        self.line.clear()
        output.say(words)

    def _show_line(self, line: bytes) -> None:
        row = parse_row(line.decode(errors="replace"))
        if row is None:
            self._show_held(at_once=True)
            self._print(line + b"\n")
            return
        if self.is_engine and self.line.can_move and is_within_epoch(row):
            return  # the bar says it
        if self.wants_metrics and "epoch" in row:
            row.pop("eta_s", None)  # the bar says it
            self.of_epochs = row["epoch"].partition("/")[2]
            if self.epochs.last is not None:
                return
            self.first = row
        self._hold(row)

    def _show_epoch(self, metrics: dict[str, Any]) -> None:
        row = format_epoch(metrics, self.of_epochs)
        if row != self.first:
            self._hold(row)

    def _hold(self, row: Row) -> None:
        """Show a row, or when it is due; a later one may take its place before."""
        self.held = row, self.table.note(row)
        self._show_held()

    def _show_held(self, at_once: bool = False) -> None:
        now = time.monotonic()
        if self.held is None or (now < self.row_due and not at_once):
            return
        room = width.columns(self.stream) or width.DEFAULT_COLUMNS
        lines = self.table.format(*self.held, room, self.stream)
        self.held, self.row_due = None, now + ROW_EVERY_S
        self._print("".join(f"{line}\n" for line in lines).encode(errors="replace"))

    def _print(self, data: bytes) -> None:
        self.line.clear()
        self.was_used = self.was_used or not self.is_engine
        self._write(data)

    def _write(self, data: bytes) -> None:
        if not data or self.closed:
            return
        try:
            self.stream.buffer.write(data)
            self.stream.flush()
        except BrokenPipeError:
            # `| head`: nobody reads any more, but training need not stop
            self.closed = True
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.stream.fileno())
            output.say("note: the output is closed; the run continues")

    def close(self) -> None:
        self.line.clear()
        if self.epochs.last is not None:
            self._show_epoch(self.epochs.last)
        self._show_held(at_once=True)
        self._write(self.rest)
