"""The text that ranks and Slurm left in their logs, for `rampup why`: its last lines with their
numbers, safe to print, and the tracebacks in it with the place in the user's own code.

Reads the end of a file only. What it returns has no control characters and no endless lines,
whoever wrote them.
"""

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

import rampup

TAIL_BYTES = 65_536
COUNTED_BYTES = 64 * 2**20
"""Of a longer file the lines are not numbered: counting them would take longer than anybody
waits."""
LONGEST = 300
CODES = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)?|.)")
"""What terminals take for a command: colours, titles, moves of the cursor."""
PREFIX = re.compile(r"^\[rank\d+\]: ?")
"""torch puts it before each line of a traceback, where there are several ranks."""
FRAME = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+)')
ERROR = re.compile(r"^(?P<type>[A-Za-z_][\w.]*)(?:: ?(?P<message>.*))?$")
MESSENGERS = ("ChildFailedError", "CalledProcessError")
"""They only tell that another process failed, which printed its own traceback before."""
NOT_OURS = ("site-packages", "dist-packages", "/lib/python", "/lib64/python", "<frozen ")
PACKAGE = str(Path(rampup.__file__).parent)


class Line(NamedTuple):
    number: int | None
    text: str


class Frame(NamedTuple):
    file: str
    line: int


class Trace(NamedTuple):
    """One traceback, with the line that names the error."""

    frames: tuple[Frame, ...]
    error: Line
    after: int
    """How many lines with words in them follow."""

    @property
    def type(self) -> str:
        return self.error.text.partition(":")[0].rpartition(".")[2]


def clean(text: str, longest: int = LONGEST) -> str:
    """Safe to print: of a line that was overwritten by a progress bar, what was seen last."""
    text = CODES.sub("", text).rstrip("\r\n")
    text = text.rpartition("\r")[2].replace("\t", "    ")
    plain = "".join(letter for letter in text if letter.isprintable()).rstrip()
    return plain if len(plain) <= longest else plain[: longest - 1] + "…"


def tail(path: Path) -> list[Line]:
    """The last lines of a file; none of one that can't be read."""
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            begin = max(0, size - TAIL_BYTES)
            before = _lines_before(file, begin) if size <= COUNTED_BYTES else None
            file.seek(begin)
            data = file.read()
    except OSError:
        return []
    lines = data.decode(errors="replace").split("\n")
    first = 1 if begin else 0  # a line that was cut in two
    return [
        Line(None if before is None else before + index + 1, clean(text))
        for index, text in enumerate(lines)
        if index >= first and text.strip()
    ]


def _lines_before(file: BinaryIO, end: int) -> int:
    count, left = 0, end
    while left > 0:
        data = file.read(min(2**20, left))
        if not data:
            break
        count, left = count + data.count(b"\n"), left - len(data)
    return count


def lines_of(text: str) -> list[Line]:
    return [Line(None, clean(line)) for line in text.splitlines() if line.strip()]


# tracebacks ---------------------------------------------------------------------------------------


def traces_in(lines: Sequence[Line]) -> list[Trace]:
    """All tracebacks, in their order. One that is broken by other lines is left out."""
    found: list[tuple[tuple[Frame, ...], int]] = []
    frames: list[Frame] = []
    for index, line in enumerate(lines):
        text = PREFIX.sub("", line.text)
        frame = FRAME.match(text)
        if frame:
            frames.append(Frame(frame["file"], int(frame["line"])))
        elif frames and not text.startswith((" ", "\t")):
            if ERROR.match(text):
                found.append((tuple(frames), index))
            frames = []
    return [
        Trace(
            frames,
            Line(lines[index].number, PREFIX.sub("", lines[index].text)),
            len(lines) - index - 1,
        )
        for frames, index in found
    ]


def fatal_in(lines: Sequence[Line]) -> list[Trace]:
    """What Python's faulthandler prints when a signal ends it: the innermost call first, so it is
    turned round."""
    begins = [
        index for index, line in enumerate(lines) if line.text.startswith("Fatal Python error: ")
    ]
    if not begins:
        return []
    frames: list[Frame] = []
    current = [
        index
        for index in range(begins[-1], len(lines))
        if lines[index].text.startswith("Current thread ")
    ]
    for line in lines[current[0] + 1 :] if current else ():
        frame = FRAME.match(line.text)
        if not frame:
            break
        frames.insert(0, Frame(frame["file"], int(frame["line"])))
    return [Trace(tuple(frames), lines[begins[-1]], len(lines) - begins[-1] - 1)]


def last_of(traces: Sequence[Trace]) -> Trace | None:
    """The one that tells most: not of a parent that only passes on that its child failed."""
    telling = [trace for trace in traces if trace.type not in MESSENGERS]
    return (telling or traces)[-1] if traces else None


def users_frame(traces: Sequence[Trace], folders: Iterable[Path]) -> Frame | None:
    """The last place in the user's own code, not in a library and not in rampup."""
    own = [str(folder) + os.sep for folder in folders]
    for trace in reversed(traces):
        for frame in reversed(trace.frames):
            if _is_users(frame.file, own):
                return frame
    return None


def _is_users(file: str, own: list[str]) -> bool:
    if any(mark in file for mark in NOT_OURS) or file.startswith(PACKAGE + os.sep):
        return False
    return not os.path.isabs(file) or file.startswith(tuple(own))
