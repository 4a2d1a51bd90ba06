"""How every verb prints: stdout is data, stderr is for people.

Three modes decide themselves: a terminal gets colour and lines that fit its width, a pipe plain
lines, `--json` one JSON value on stdout and nothing else there. Whatever is printed passes through
`tame`: names, metrics and causes come from files that anybody may have written, and what a terminal
would obey, or what would look like another line, is shown as text.
"""

import json
import os
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from rampup.cli import width
from rampup.core.harmless import escape, escape_line
from rampup.errors import RampupError

if TYPE_CHECKING:
    from rampup.core.finding import Finding

OWN = int.from_bytes(os.urandom(8))
"""Marks our own colours until they are printed: nobody can write them into a file."""
COLOURS_OF_OURS = re.compile(rf"\x1b\[{OWN};(\d+)m")
BOLD, DIM, RED, GREEN, YELLOW, BLUE = "1", "2", "31", "32", "33", "34"
LEAST_COLUMN = 8
"""A column of a table is never cut to less."""
LEAST_TEXT = 24
"""A column of text is never folded to less: then it is cut."""
STATE_COLOURS = {
    "completed": GREEN,
    "failed": RED,
    "timeout": RED,
    "cancelled": YELLOW,
    "running": BLUE,
    "pending": DIM,
}
STATE_WORDS = {"unreadable": "not readable"}
"""Where people read something else than machines."""


def has_colours(stream: Any) -> bool:
    """Tell whether to use colour: only on a real terminal, because FORCE_COLOR in a batch job must not
    fill a log with escapes."""
    return "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb" and stream.isatty()


def paint(text: str, colour: str, stream: Any = None) -> str:
    """Colour a text that is about to be printed by this module."""
    if not has_colours(stream or sys.stdout):
        return text
    return f"\x1b[{OWN};{colour}m{text}\x1b[{OWN};0m"


def tame(line: str) -> str:
    """Return a line as it may be printed: with our own colours, and no other command in it."""
    if "\x1b" not in line:
        return escape_line(line)
    parts = COLOURS_OF_OURS.split(line)
    texts, colours = parts[::2], parts[1::2]
    shown = [
        f"\x1b[{colour}m{escape_line(text)}"
        for colour, text in zip(colours, texts[1:], strict=True)
    ]
    return "".join([escape_line(texts[0]), *shown])


def say(text: str = "") -> None:
    """Print a line for the person at the terminal."""
    print(fold(tame(text), sys.stderr), file=sys.stderr, flush=True)


def say_lines(text: str) -> None:
    """Print a text of several lines for the person at the terminal."""
    for line in text.split("\n"):
        say(line.replace("\t", "    "))


def write_whole(text: str = "") -> None:
    """Print a line of the answer that is never folded or cut, because they copy from it."""
    print(tame(text))


def write_text(text: str) -> None:
    """Print a text of several lines, such as a script, as it is."""
    print(escape(text))


def say_notes(notes: "Iterable[Finding]") -> None:
    """Print what the checks before a run found doubtful."""
    for note in notes:
        say(f"note: {note.cause}; try: {note.remedy}")


def say_path(label: str, path: Path) -> None:
    """Print a line that ends with a path; on a terminal the path fits behind the label."""
    say(fit_path(label, path, sys.stderr))


def fit_path(label: str, path: Path, stream: Any) -> str:
    room = width.columns(stream)
    left = room if room is None else room - width.measure(label)
    return label + width.format_path(path, left)


def write(text: str, most: int | None = None) -> None:
    """Print a line of the answer on stdout; on a terminal in so many rows at most."""
    rows = fold(tame(text), sys.stdout).split("\n")
    if most is not None and len(rows) > most:
        room = width.columns(sys.stdout) or width.DEFAULT_COLUMNS
        last = width.split_at(rows[most - 1], room - 2)[0].rstrip()
        rows = [*rows[: most - 1], f"{last} {width.MORE}"]
    print("\n".join(rows))


def fold(text: str, stream: Any) -> str:
    """Break lines that a terminal would wrap inside a word."""
    room = width.columns(stream)
    return text if room is None else width.fold(text, room)


def paint_state(state: str, words: str | None = None, stream: Any = None) -> str:
    """Return the name of a state, or words about it, in the colour of the state."""
    plain = STATE_WORDS.get(state, state) if words is None else words
    return paint(plain, STATE_COLOURS.get(state, DIM), stream)


def next_step(command: str, other: str = "") -> None:
    """Print the line that ends every success: what a person would do now, or another command.
    Commands are never folded, because people copy them: two that do not fit get a line each."""
    label, room = paint("next:", BOLD, sys.stderr), width.columns(sys.stderr)
    line = f"{label} {command}, or {other}" if other else f"{label} {command}"
    if other and room is not None and width.measure(line) > room:
        say_whole(f"{label} {command}")
        line = f"  or: {other}"
    say_whole(line)


def say_whole(text: str) -> None:
    """Print a line for people that is never folded or cut, because they copy from it."""
    print(tame(text), file=sys.stderr, flush=True)


def emit_json(value: Any) -> None:
    print(json.dumps(value), flush=True)


def table(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    right: frozenset[int] = frozenset(),
    fold_last: bool = False,
) -> None:
    """Print aligned columns on stdout; `right` holds the indices of columns of numbers. On a
    terminal they fit its width: the widest are cut, and the last ones left out. With `fold_last`
    the last column is text to read: it takes several lines."""
    room = width.columns(sys.stdout)
    head, rows = [tame(each) for each in head], [[tame(each) for each in row] for row in rows]
    if fold_last and room is not None:
        rows = fold_column(head, rows, room)
    shown = count_fitting(head, rows, room)
    cut = [row[:shown] for row in rows]
    for index, line in enumerate(table_lines(head[:shown], cut, right, room)):
        print(tame(paint(line, BOLD)) if index == 0 else line)
    if shown < len(head):
        say(f"no room for: {', '.join(head[shown:])}; a wider terminal or a pipe shows them")


def count_fitting(head: Sequence[str], rows: Sequence[Sequence[str]], room: int | None) -> int:
    """Return how many columns fit, when each may be cut to a few characters."""
    if room is None:
        return len(head)
    widths = measure_columns([measure_cells(row) for row in (head, *rows)])
    least = [min(each, LEAST_COLUMN) for each in widths]
    count = len(least)
    while count > 1 and sum(least[:count]) + 2 * (count - 1) > room:
        count -= 1
    return count


def fold_column(
    head: Sequence[str], rows: Sequence[Sequence[str]], room: int
) -> Sequence[Sequence[str]]:
    """Return rows whose last cell fits; what does not fit stands in further rows below it."""
    before = measure_columns([measure_cells(row[:-1]) for row in (head, *rows)])
    left = room - sum(before) - 2 * len(before)
    if left < LEAST_TEXT:
        return rows
    folded: list[list[str]] = []
    for *cells, text in rows:
        first, *more = width.fold(text, left).split("\n")
        folded += [[*cells, first], *([*[""] * len(cells), line] for line in more)]
    return folded


def measure_cells(cells: Sequence[str]) -> list[int]:
    return [width.measure(str(cell)) for cell in cells]


def measure_columns(taken: Sequence[Sequence[int]]) -> list[int]:
    """Return how wide each column is; `taken` holds what the cells of each row take."""
    return [max(column) for column in zip(*taken, strict=True)]


def table_lines(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    right: frozenset[int] = frozenset(),
    room: int | None = None,
) -> list[str]:
    """Return the header and the rows, aligned; with `room`, in at most so many columns. Each cell is
    measured once: a list may have thousands of rows."""
    texts = [[str(cell) for cell in row] for row in (head, *rows)]
    taken = [measure_cells(row) for row in texts]
    widths = measure_columns(taken)
    if room is not None:
        widths = width.fit_columns(widths, room)
        texts = [list(map(fit_cell, row, widths)) for row in texts]
        taken = [measure_cells(row) for row in texts]
    return [align_row(*row, widths, right) for row in zip(texts, taken, strict=True)]


def align_row(
    cells: Sequence[str], taken: Sequence[int], widths: Sequence[int], right: frozenset[int]
) -> str:
    """Return a row whose cells take so many columns, each padded to the width of its column."""
    padded = []
    for index, cell in enumerate(cells):
        missing = " " * (widths[index] - taken[index])
        padded.append(missing + cell if index in right else cell + missing)
    return "  ".join(padded).rstrip()


def fit_cell(cell: str, room: int) -> str:
    """Cut a cell, and keep its colour."""
    plain = width.COLOUR.sub("", cell)
    short = width.shorten(plain, room)
    return cell if short == plain else cell.replace(plain, short)


QUOTED = "\n  "
"""What precedes each line of a log in a message. Other line breaks come from values: they are escaped."""


def fail(error: RampupError) -> NoReturn:
    """Print what failed and a hint, and exit with the error's code. RAMPUP_DEBUG shows the
    traceback."""
    if os.environ.get("RAMPUP_DEBUG"):
        raise error
    first, *quoted = error.message.split(QUOTED)
    say(f"{paint('error:', RED, sys.stderr)} {first}")
    for line in quoted:
        say(f"  {line}")
    if error.hint:
        say(f"{paint('hint:', BOLD, sys.stderr)} {error.hint}")
    sys.exit(error.exit_code)


def duration(seconds: float) -> str:
    """Write 4.2 s, 3 min 05 s or 2 h 14 min."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def number(value: Any) -> str:
    """Write a metric for people: four significant digits, thousands with commas."""
    if value is None:
        return "nan"  # JSON has no such number; the log tells which it was
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if isinstance(value, int):
        return f"{value:,}"  # of any length
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def count(number: int, noun: str) -> str:
    """Write 1 rank, 2 ranks."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
