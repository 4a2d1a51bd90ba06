"""The text that ranks and Slurm left in their logs, read for clues.py: the last lines of a file
with their numbers, and the tracebacks in them with the place in the user's own code.

It reads only the end of a file. Every line that it returns is safe to print: it has no control
characters and is not endless, whatever the program wrote.
"""

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

import rampup
from rampup.rundir import opening

TAIL_BYTES = 65_536
COUNTED_BYTES = 64 * 2**20
"""The lines of a longer file are not numbered, because counting them would take too long."""
LONGEST_LINE = 300
MESSAGE_LINES, LONGEST_MESSAGE = 6, 200
"""Lines after an error that may be more of its message, and at most, of an array, for example."""
TERMINAL_CODES = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)?|.)")
"""Commands to a terminal: colours, titles, moves of the cursor."""
RANK_PREFIX = re.compile(r"^\[rank\d+\]: ?")
"""torch writes it before each line of a traceback, where there are several ranks."""
FRAME = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+)')
ERROR = re.compile(r"^(?P<type>[A-Za-z_][\w.]*)(?:: ?(?P<message>.*))?$")
MESSENGERS = ("ChildFailedError", "CalledProcessError")
"""Errors that only report that another process failed, which printed its own traceback before."""
LIBRARY_MARKS = ("site-packages", "dist-packages", "/lib/python", "/lib64/python", "<frozen ")
PACKAGE = str(Path(rampup.__file__).parent)


class Line(NamedTuple):
    """A line of a log, safe to print."""

    number: int | None
    text: str


class Frame(NamedTuple):
    """One call of a traceback."""

    file: str
    line: int


class Trace(NamedTuple):
    """One traceback, with the line that names the error."""

    frames: tuple[Frame, ...]
    error: Line
    after: int
    """How many lines follow that are not empty, and not of its message."""
    message: tuple[Line, ...] = ()
    """The lines right after the first one of the error: the rest of its message, if it has more."""

    @property
    def type(self) -> str:
        return self.error.text.partition(":")[0].rpartition(".")[2]


def clean(text: str, longest: int = LONGEST_LINE) -> str:
    """Make a line safe to print. If a progress bar overwrote it, its last version remains."""
    text = TERMINAL_CODES.sub("", text).rstrip("\r\n")
    text = text.rpartition("\r")[2].replace("\t", "    ")
    if not text.isprintable():
        text = "".join(letter for letter in text if letter.isprintable())
    plain = text.rstrip()
    return plain if len(plain) <= longest else plain[: longest - 1] + "…"


def read_tail(path: Path) -> list[Line]:
    """Return the last lines of a file; none if it can't be read."""
    try:
        with open(opening.open_file(path), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            begin = max(0, size - TAIL_BYTES)
            before = _count_lines(file, begin) if size <= COUNTED_BYTES else None
            file.seek(begin)
            data = file.read()
    except OSError:
        return []
    lines = data.decode(errors="replace").split("\n")
    found = []
    for index, text in enumerate(lines):
        cut_in_two = index == 0 and begin > 0
        if text.strip() and not cut_in_two:
            number = None if before is None else before + index + 1
            found.append(Line(number, clean(text)))
    return found


def _count_lines(file: BinaryIO, end: int) -> int:
    """Count the lines before a position."""
    return sum(part.count(b"\n") for part in opening.read_parts(file.fileno(), 0, end))


def split_lines(text: str) -> list[Line]:
    """Return the lines of a text that are not empty, without numbers."""
    return [Line(None, clean(line)) for line in text.splitlines() if line.strip()]


# tracebacks ---------------------------------------------------------------------------------------


def find_traces(lines: Sequence[Line]) -> list[Trace]:
    """Return all tracebacks in order, without those that other lines interrupt."""
    found: list[Trace] = []
    frames: list[Frame] = []
    for index, line in enumerate(lines):
        text = RANK_PREFIX.sub("", line.text)
        frame = FRAME.match(text)
        if frame:
            frames.append(Frame(frame["file"], int(frame["line"])))
        elif frames and not text.startswith((" ", "\t")):
            if ERROR.match(text):
                rest = lines[index + 1 :]
                inner = count_open_lines(text, rest)
                error = Line(line.number, text)
                message = take_message(rest[: max(inner, MESSAGE_LINES)])
                found.append(Trace(tuple(frames), error, len(rest) - inner, message))
            frames = []
    return found


def take_message(rest: Sequence[Line]) -> tuple[Line, ...]:
    """Return the lines before another traceback."""
    texts = [RANK_PREFIX.sub("", line.text) for line in rest]
    ends = (index for index, text in enumerate(texts) if text.startswith("Traceback "))
    return tuple(rest[: next(ends, len(rest))])


def count_open_lines(text: str, rest: Sequence[Line]) -> int:
    """Return how many lines belong to a message because a bracket of its first line is open: an
    array, for example."""
    depth, count = count_brackets(text), 0
    while depth > 0 and count < min(len(rest), LONGEST_MESSAGE):
        depth += count_brackets(rest[count].text)
        count += 1
    return count


def count_brackets(text: str) -> int:
    """Return how many brackets a line opens and does not close."""
    return sum(map(text.count, "([{")) - sum(map(text.count, ")]}"))


def find_fatal_error(lines: Sequence[Line]) -> list[Trace]:
    """Return the last report of Python's faulthandler, which it prints when a signal ends Python.
    It lists the innermost call first; a traceback lists it last, and so does the result."""
    begin = _find_last(lines, "Fatal Python error: ")
    if begin is None:
        return []
    frames: list[Frame] = []
    report = iter(lines[begin:])
    for line in report:
        if line.text.startswith("Current thread "):
            break
    for line in report:
        frame = FRAME.match(line.text)
        if not frame:
            break
        frames.insert(0, Frame(frame["file"], int(frame["line"])))
    return [Trace(tuple(frames), lines[begin], len(lines) - begin - 1)]


def _find_last(lines: Sequence[Line], start: str) -> int | None:
    for index in reversed(range(len(lines))):
        if lines[index].text.startswith(start):
            return index
    return None


def pick_telling(traces: Sequence[Trace]) -> Trace | None:
    """Return the last traceback, but not that of a parent which only reports that its child
    failed."""
    telling = [trace for trace in traces if trace.type not in MESSENGERS]
    return (telling or traces)[-1] if traces else None


def is_in_package(trace: Trace | None) -> bool:
    """Return whether an installed package raised the error."""
    if trace is None or not trace.frames:
        return False
    return any(mark in trace.frames[-1].file for mark in ("site-packages", "dist-packages"))


def is_passed_on(trace: Trace, traces: Sequence[Trace]) -> bool:
    """Return whether a parent, as torchrun or fabric, reports below that its child failed."""
    later = traces[traces.index(trace) + 1 :]
    return any(each.type in MESSENGERS for each in later)


def find_users_frame(traces: Sequence[Trace], folders: Iterable[Path]) -> Frame | None:
    """Return the last call in the user's own code, not in a library and not in rampup."""
    own = [str(folder) + os.sep for folder in folders]
    for trace in reversed(traces):
        for frame in reversed(trace.frames):
            if _is_users(frame.file, own):
                return frame
    return None


def _is_users(file: str, own: list[str]) -> bool:
    if any(mark in file for mark in LIBRARY_MARKS) or file.startswith(PACKAGE + os.sep):
        return False
    return not os.path.isabs(file) or file.startswith(tuple(own))
