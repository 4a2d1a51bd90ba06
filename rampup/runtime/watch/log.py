"""Metrics in what a program prints: MLPerf's lines, those of transformers' Trainer, and the patterns
that the user gave with `--metric`.

`Log` reads the log of rank 0 as it grows, line by line; a line that is not whole yet waits. Each
source looks at every line and yields what it found. Patterns get a budget of CPU time: a slow one
is dropped with a warning. Only watch.py calls this; nothing here writes.
"""

import ast
import json
import os
import re
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, Protocol

from rampup.core.mlperf import KINDS, TOKEN
from rampup.core.program import PLACES, Pattern

LONGEST_LINE = 4096
"""Bytes; the rest of a longer line is not looked at."""
PART_BYTES = 2**20
ENDS = re.compile(rb"[\r\n]")
"""A progress bar draws itself again after a carriage return."""
LINE_BUDGET_S = 0.1
"""CPU time that one pattern may take for one line."""
SHARE, FREE_S = 0.1, 1.0
"""Of the time since the start, how much one pattern may take in all; so much is always free."""
BAR = re.compile(r"\s*\d+%\|.*\| *(\d+)/\d+ \[")
"""A bar of tqdm without a title: the one of Trainer counts steps."""
UP = "\x1b[A"
"""After a bar that is drawn below another, as that of an evaluation, the cursor goes up again."""
TRAILING = ",;:)]}%"


class Found(NamedTuple):
    """What a source found in one place: numbers by name, and the step where it is known."""

    values: dict[str, float]
    step: int | None = None


class Source(Protocol):
    """Knows metrics in lines of a log."""

    def look(self, line: str) -> Iterator[Found]:
        """Yield what a line holds."""


def read_number(text: Any) -> float | None:
    """Return the number that a text is, also before a comma or in brackets; None for other text."""
    if isinstance(text, bool):
        return None
    if isinstance(text, int | float):
        return text
    try:
        return float(text.rstrip(TRAILING)) if isinstance(text, str) else None
    except ValueError:
        return None


def read_step(value: Any) -> int | None:
    number = read_number(value)
    return int(number) if number is not None and number >= 0 and number % 1 == 0 else None


class Log:
    """The log of rank 0, from where it was read last."""

    def __init__(self, path: Path) -> None:
        self._path, self._at, self._torn = path, 0, b""
        self._skips = False

    def read(self, until: Callable[[], bool] = lambda: False) -> Iterator[str]:
        """Yield the lines that are new and whole. `until` says when to give up."""
        try:
            file = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:  # not begun
            return
        try:
            while part := os.pread(file, PART_BYTES, self._at):
                self._at += len(part)
                yield from self._split(part)
                if until():
                    return
        finally:
            os.close(file)

    def read_rest(self) -> Iterator[str]:
        """Yield the last line where it has no end: the program has ended."""
        if self._torn and not self._skips:
            yield self._torn[:LONGEST_LINE].decode("utf-8", "replace")
        self._torn = b""

    def _split(self, part: bytes) -> Iterator[str]:
        pieces = ENDS.split(self._torn + part)
        self._torn = pieces.pop()
        for piece in pieces:
            if piece and not self._skips:
                yield piece[:LONGEST_LINE].decode("utf-8", "replace")
            self._skips = False
        if len(self._torn) > LONGEST_LINE:  # what comes is the rest of a line that was looked at
            if not self._skips:
                yield self._torn[:LONGEST_LINE].decode("utf-8", "replace")
            self._torn, self._skips = b"", True


# MLPerf -------------------------------------------------------------------------------------------


class MlperfLines:
    """`:::MLLOG {...}`: values that belong to a step or an epoch, and results of evaluations. Other
    keys are settings, printed once."""

    RESULTS = ("train_loss", "eval_loss", "eval_accuracy", "eval_error", "train_accuracy")
    STEPS = ("step_num", "global_step", "samples_count")
    EPOCHS = ("epoch_num",)

    def __init__(self) -> None:
        self._step: int | None = None

    def look(self, line: str) -> Iterator[Found]:
        at = line.find(TOKEN)
        if at < 0:
            return
        try:
            event, _ = json.JSONDecoder().raw_decode(line[at + len(TOKEN) :])
        except (ValueError, RecursionError):
            return
        if not isinstance(event, dict) or event.get("event_type") == KINDS["start"]:
            return
        metadata = event.get("metadata")
        place = metadata if isinstance(metadata, dict) else {}
        step = next((place[key] for key in self.STEPS if key in place), None)
        epoch = next((read_number(place[key]) for key in self.EPOCHS if key in place), None)
        key, value = event.get("key"), event.get("value")
        if step is None and epoch is None and key not in self.RESULTS:
            return
        named = value if isinstance(value, dict) else {key: value}
        numbers = {name: read_number(one) for name, one in named.items() if isinstance(name, str)}
        values = {name: one for name, one in numbers.items() if one is not None}
        if values:
            known = read_step(step)
            self._step = self._step if known is None else known
            if epoch is not None:
                values["epoch"] = epoch
            fallback = read_step(epoch) if self._step is None else self._step
            yield Found(values, fallback)


# transformers -------------------------------------------------------------------------------------


class TrainerLines:
    """The dictionaries that transformers' Trainer prints; each has an epoch. The step is that of its
    progress bar, the uppermost, which is drawn again right below; without it nobody knows it."""

    NOT_FINITE = re.compile(r"(?<![\w'\"])(nan|-?inf)(?!\w)")

    def __init__(self) -> None:
        self._waits: list[dict[str, float]] = []
        self._has_bar = False
        self.seen = False
        """Whether there were such lines: then trainer_state.json has nothing new."""

    def look(self, line: str) -> Iterator[Found]:
        bar = BAR.match(line)
        if bar is not None:
            if not line.endswith(UP):
                self._has_bar = True
                yield from self.flush(int(bar[1]))
            return
        at = line.find("{'")
        if at < 0 or "'epoch':" not in line:
            return
        values = self._read(line[at : line.rfind("}") + 1])
        if values:
            self.seen = True
            self._waits.append(values)
            if not self._has_bar:
                yield from self.flush(None)

    def flush(self, step: int | None = None) -> Iterator[Found]:
        """Yield what has waited for its step."""
        waited, self._waits = self._waits, []
        for values in waited:
            yield Found(values, step)

    def _read(self, text: str) -> dict[str, float]:
        try:
            found = ast.literal_eval(self.NOT_FINITE.sub(r"'\1'", text))
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return {}
        if not isinstance(found, dict) or "epoch" not in found:
            return {}
        numbers = {str(name): read_number(value) for name, value in found.items()}
        return {name: value for name, value in numbers.items() if value is not None}


# patterns -----------------------------------------------------------------------------------------


class TooSlowError(Exception):
    """A pattern has used up its time."""


@contextmanager
def cpu_limit(seconds: float) -> Iterator[None]:
    """Raise TooSlowError in the block when this process has computed for so long. The engine of
    `re` looks for signals while it searches."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise TooSlowError

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


class PatternLines:
    """The patterns of `--metric`. A step or an epoch holds for the lines below it too."""

    def __init__(self, patterns: Sequence[Pattern], warn: Callable[[str], None]) -> None:
        self._patterns, self._warn = list(patterns), warn
        self._spent = dict.fromkeys(range(len(patterns)), 0.0)
        self._began = time.monotonic()
        self._place: dict[str, float] = {}

    def look(self, line: str) -> Iterator[Found]:
        values: dict[str, float] = {}
        for index, pattern in enumerate(self._patterns):
            if index in self._spent:
                found = self._find(index, pattern, line)
                numbers = {name: read_number(text) for name, text in found.items()}
                values |= {name: one for name, one in numbers.items() if one is not None}
        self._place |= {name: values.pop(name) for name in PLACES if name in values}
        if values:
            if "epoch" in self._place:
                values["epoch"] = self._place["epoch"]
            yield Found(values, read_step(self._place.get("step")))

    def _find(self, index: int, pattern: Pattern, line: str) -> dict[str, str]:
        before = time.process_time()
        try:
            with cpu_limit(LINE_BUDGET_S):
                found = pattern.find(line)
        except TooSlowError:
            self._drop(index, pattern, f"it took {LINE_BUDGET_S:g} s for one line")
            return {}
        self._spent[index] += time.process_time() - before
        elapsed = time.monotonic() - self._began
        if self._spent[index] > FREE_S + SHARE * elapsed:
            self._drop(index, pattern, f"it took {self._spent[index]:.1f} s in all")
        return found

    def _drop(self, index: int, pattern: Pattern, why: str) -> None:
        del self._spent[index]
        self._warn(f"--metric {pattern.text!r} is too slow and was dropped: {why}")
