"""How every verb prints: stdout is data, stderr is for people.

Three modes decide themselves: a terminal gets colour, a pipe plain lines, `--json` one JSON value
on stdout and nothing else there. rich is imported by the progress bar alone, so that reading verbs
start in a blink.
"""

import json
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from rampup.errors import RampupError

BOLD, DIM, RED, GREEN, YELLOW = "1", "2", "31", "32", "33"
STATE_COLOURS = {
    "completed": GREEN,
    "failed": RED,
    "timeout": RED,
    "cancelled": YELLOW,
    "running": BOLD,
    "pending": DIM,
}


def has_colours(stream: Any) -> bool:
    """Tell whether to use colour: only on a real terminal, because FORCE_COLOR in a batch job must not
    fill a log with escapes."""
    return "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb" and stream.isatty()


def paint(text: str, colour: str, stream: Any = None) -> str:
    return f"\x1b[{colour}m{text}\x1b[0m" if has_colours(stream or sys.stdout) else text


def say(text: str = "") -> None:
    """Print a line for the person at the terminal."""
    print(text, file=sys.stderr, flush=True)


def next_step(command: str) -> None:
    """Print the line that ends every success: what a person would do now."""
    say(f"{paint('next:', BOLD, sys.stderr)} {command}")


def print_wrapped(line: str, most: int = 2) -> None:
    """Print a line on stdout; on a terminal it is broken between words, into so many lines at
    most."""
    if not sys.stdout.isatty():
        print(line)
        return
    import shutil
    import textwrap

    width = shutil.get_terminal_size().columns
    print(
        textwrap.fill(
            line,
            width,
            subsequent_indent="  ",
            break_on_hyphens=False,
            max_lines=most,
            placeholder=" …",
        )
    )


def emit_json(value: Any) -> None:
    print(json.dumps(value), flush=True)


def table(
    head: Sequence[str], rows: Sequence[Sequence[str]], right: frozenset[int] = frozenset()
) -> None:
    """Print aligned columns on stdout; `right` holds the indices of columns of numbers."""
    widths = [max(len(str(row[column])) for row in (head, *rows)) for column in range(len(head))]

    def line(cells: Sequence[str]) -> str:
        padded = [
            str(cell).rjust(width) if index in right else str(cell).ljust(width)
            for index, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        return "  ".join(padded).rstrip()

    print(paint(line(head), BOLD))
    for row in rows:
        print(line(row))


def fail(error: RampupError) -> NoReturn:
    """Print what failed and a hint, and exit with the error's code. RAMPUP_DEBUG shows the
    traceback."""
    if os.environ.get("RAMPUP_DEBUG"):
        raise error
    say(f"{paint('error:', RED, sys.stderr)} {error.message}")
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
