"""One run as a report sees it: the record that collect.py fills, and that charts, words and notes
are made from."""

import math
from typing import Any

from msgspec import Struct

from rampup.core.finding import Finding
from rampup.diagnose.advice import Undefined
from rampup.rundir.files import RunDir
from rampup.rundir.history import Attempt
from rampup.rundir.records import Record
from rampup.runs.state import State

LARGEST = 1e300
NOT_MEASURED = "not measured"
"""A stretch of time that nobody has split up."""


class Curve(Struct):
    xs: list[float]
    ys: list[float | None]
    """None where it was no finite number: one for a whole stretch of them."""

    def points(self) -> list[tuple[float, float]]:
        """Those that are numbers."""
        return [(x, y) for x, y in zip(self.xs, self.ys, strict=True) if y is not None]


class Story(Struct):
    """All that is known of one run."""

    run: RunDir
    missing: list[str]
    """What could not be read, in words."""
    name: str = "?"
    state: State = State("unknown")
    identity: Record = {}
    config: Record = {}
    env: Record = {}
    attempt: Record = {}
    """The last attempt, as its launcher wrote it down."""
    start: Record = {}
    """What rank 0 said when training began."""
    loader: Record = {}
    """How it reads its data, where the engine has data loaders."""
    tries: list[Attempt] = []
    """All attempts, the oldest first."""
    wall_s: float | None = None
    last: Record = {}
    best: Record | None = None
    curves: dict[str, Curve] = {}
    undefined: dict[str, Undefined] = {}
    phases: dict[str, float] = {}
    """Seconds, over all attempts."""
    system: dict[str, list[list[Record]]] = {}
    """For each node the samples, one list per attempt."""
    evaluation: Record = {}
    """What the last validation with torch or Lightning saw."""
    log_name: str = ""
    log: str = ""
    trace: str = ""
    profile: str = ""
    """Lightning's table of where the time went."""
    notes: list[Finding] = []

    @property
    def train(self) -> Record:
        return table(self.config.get("train"))

    @property
    def sampled(self) -> tuple[float, float]:
        """The times of the first and the last sample."""
        times = [row["t"] for parts in self.system.values() for part in parts for row in part]
        return min(times, default=0.0), max(times, default=0.0)

    @property
    def resources(self) -> Record:
        return table(self.config.get("resources"))


def table(value: Any) -> Record:
    return value if isinstance(value, dict) else {}


def finite(value: Any) -> float | None:
    """The value as a number that can be drawn."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if -LARGEST < value < LARGEST and math.isfinite(value) else None
