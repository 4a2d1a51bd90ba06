"""Text that fits a terminal: how many columns it takes, and how to cut, pad or fold it.

Everything that prints rows asks here, so that no row wraps. Wide characters take two columns,
combining ones none, and colours none. Nothing is cut or folded in a pipe or a file.
"""

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

COLOUR = re.compile(r"\x1b\[[0-9;]*m")
DEFAULT_COLUMNS = 80
"""Where a terminal does not say how wide it is."""
NARROWEST = 20
"""Below this a line is as good as unreadable: it is laid out for this many columns."""
MORE = "…"


def columns(stream: Any) -> int | None:
    """Return the width of the terminal behind a stream; None where there is none."""
    if not stream.isatty():
        return None
    try:
        found = os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):
        found = 0
    return max(NARROWEST, found or DEFAULT_COLUMNS)


def measure(text: str) -> int:
    """Return the columns that a text takes."""
    if text.isascii() and "\x1b" not in text:
        return len(text)
    return sum(measure_character(each) for each in COLOUR.sub("", text))


def measure_character(each: str) -> int:
    import unicodedata  # only wide letters pay for it

    if unicodedata.combining(each) or unicodedata.category(each) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(each) in "WF" else 1


def shorten(text: str, room: int) -> str:
    """Cut the end of a text without colours, so that it takes at most `room` columns."""
    if measure(text) <= room:
        return text
    return split_at(text, room - 1)[0] + MORE


def shorten_middle(text: str, room: int) -> str:
    """Cut the middle out of a text: for paths, whose beginning and end say the most."""
    if measure(text) <= room:
        return text
    head = split_at(text, (room - 1) // 3)[0]
    tail = split_at(text[::-1], room - 1 - measure(head))[0]
    return head + MORE + tail[::-1]


def split_at(text: str, room: int) -> tuple[str, str]:
    """Split a text without colours after the last character that fits."""
    used = 0
    for index, each in enumerate(text):
        used += measure_character(each)
        if used > room:
            return text[:index], text[index:]
    return text, ""


def pad(text: str, room: int, right: bool = False) -> str:
    gap = " " * max(0, room - measure(text))
    return gap + text if right else text + gap


def fold(text: str, room: int) -> str:
    """Break a text at its spaces into lines that fit. A line that continues another is indented
    below it."""
    return "\n".join(folded for line in text.split("\n") for folded in fold_line(line, room))


def fold_line(line: str, room: int) -> list[str]:
    if measure(line) <= room:
        return [line]
    margin = " " * min(len(line) - len(line.lstrip(" ")) + 2, room // 2)
    lines, current = [], ""
    for piece in re.findall(r" *[^ ]+", line.rstrip()):
        if current.strip() and measure(current + piece) > room:
            lines.append(current)
            current, piece = margin, piece.lstrip(" ")
        current += piece
        if measure(current) > room and not COLOUR.search(current):
            *whole, current = cut_word(current, room, margin)
            lines += whole
    return [*lines, current]


def cut_word(text: str, room: int, margin: str) -> list[str]:
    """Cut a text without colours into lines; each but the first begins with the margin."""
    lines: list[str] = []
    rest, left = text, measure(text)
    while left > room - len(margin if lines else ""):
        head, rest = split_at(rest, room - len(margin if lines else ""))
        left -= measure(head)
        lines.append(margin + head if lines else head)
    return [*lines, margin + rest if lines else rest]


def join_folded(label: str, parts: Sequence[str], room: int | None) -> str:
    """Join parts behind a label; where a line is full, the next one begins with a whole part."""
    lines, current = [], label + parts[0]
    for part in parts[1:]:
        longer = f"{current}  {part}"
        if room is not None and measure(longer) > room:
            lines.append(current)
            longer = f"  {part}"
        current = longer
    return "\n".join([*lines, current])


def join_fitting(label: str, parts: Sequence[str], room: int | None) -> str:
    """Join as many parts as fit behind a label. A sign says that some were left out."""
    whole = label + "  ".join(parts)
    if room is None or measure(whole) <= room:
        return whole
    shown: list[str] = []
    left = room - measure(label) - measure(MORE)
    for part in parts:
        left -= measure(part) + 2
        if left < 0:
            break
        shown.append(part)
    return label + "  ".join([*shown, MORE])


def format_path(path: Path, room: int | None) -> str:
    """Return a path; where it is too long, as seen from here, and else without its middle."""
    if room is None or measure(str(path)) <= room:
        return str(path)
    seen = os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)
    return shorten_middle(seen, room)


def fit_columns(widths: Sequence[int], room: int, gap: int = 2) -> list[int]:
    """Return widths that fit in a row: the widest columns give way first."""
    fitted = list(widths)
    while sum(fitted) + gap * (len(fitted) - 1) > room and max(fitted) > 1:
        fitted[fitted.index(max(fitted))] -= 1
    return fitted
