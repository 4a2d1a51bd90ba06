"""One run as a report sees it: `RunData`, which read.py fills and everything else here is made of.

Also the facts that the rules of diagnose/advice.py look at, taken from it. Pure: nothing is read
from a run directory here.
"""

import math
from typing import Any

from msgspec import Struct

from rampup.config.clusters import LOCAL
from rampup.core.finding import Finding
from rampup.core.units import parse_memory_mb
from rampup.diagnose.advice import Facts, Undefined
from rampup.diagnose.why.explain import Answer
from rampup.rundir.files import RunDir
from rampup.rundir.history import Attempt
from rampup.rundir.records import Record
from rampup.runs.apart import find_apart_of, remedy_of
from rampup.runs.state import State
from rampup.schedulers import find_recorded

LARGEST = 1e300
NOT_MEASURED = "not measured"
"""The phase of a stretch of time that nobody has split up."""


class Curve(Struct):
    xs: list[float]
    ys: list[float | None]
    """None where the value was not finite: one for a whole stretch of them."""

    def points(self) -> list[tuple[float, float]]:
        """Return the points that are numbers."""
        return [(x, y) for x, y in zip(self.xs, self.ys, strict=True) if y is not None]


class RunData(Struct):
    """All that is known of one run."""

    run: RunDir
    missing: list[str]
    """What could not be read, in words."""
    name: str = "?"
    state: State = State("unknown")
    why: Answer | None = None
    """What `rampup why` says of a run that ended badly."""
    identity: Record = {}
    config: Record = {}
    env: Record = {}
    attempt: Record = {}
    """The last attempt, as its launcher recorded it."""
    start: Record = {}
    """What rank 0 recorded when training began."""
    loader: Record = {}
    """How it reads its data, where the engine has data loaders."""
    reading: dict[str, float] = {}
    """What was read sample by sample; empty for data in memory."""
    attempts: list[Attempt] = []
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
    traceback: str = ""
    profile: str = ""
    """Lightning's table of where the time went."""
    notes: list[Finding] = []

    @property
    def train(self) -> Record:
        return as_table(self.config.get("train"))

    @property
    def resources(self) -> Record:
        return as_table(self.config.get("resources"))

    @property
    def sampled(self) -> tuple[float, float]:
        """Return the times of the first and the last sample."""
        times = [row["t"] for parts in self.system.values() for part in parts for row in part]
        return min(times, default=0.0), max(times, default=0.0)

    @property
    def has_several_attempts(self) -> bool:
        return len(self.attempts) > 1


def as_table(value: Any) -> Record:
    return value if isinstance(value, dict) else {}


def finite(value: Any) -> float | None:
    """Return the value as a number that can be drawn, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if -LARGEST < value < LARGEST and math.isfinite(value) else None


# facts for advice ---------------------------------------------------------------------------------


def advice_facts(data: RunData) -> Facts:
    """Return what the rules of diagnose/advice.py look at."""
    ranks = int(finite(data.attempt.get("world_size")) or 0)
    nodes = int(finite(data.resources.get("nodes")) or 0)
    threads = int(finite(data.start.get("threads")) or 0)
    used_mb, limit_mb = memory_use_mb(data)
    return Facts(
        wall_s=data.phases.get("wall", data.wall_s or 0.0),
        phases=phases_with_one_start(data),
        train=data.train,
        resources=data.resources,
        ranks=max(1, ranks),
        nodes=max(1, nodes),
        threads=threads or None,
        device=str(data.start.get("device", "cpu")),
        onednn=str(data.start.get("onednn", "")),
        loader=data.loader,
        reading=data.reading,
        cpus=cpus_per_node(data),
        cpu_percent=mean_cpu_percent(data),
        mem_used_mb=used_mb,
        mem_limit_mb=limit_mb,
        undefined=data.undefined,
        train_losses=tuple(values_at_validations(data, "train_loss")),
        val_losses=tuple(y for _, y in curve_points(data, "val_loss")),
        apart=apart_words(data),
    )


def apart_words(data: RunData) -> tuple[str, str] | None:
    """Return that the ranks never talked to each other, and what helps."""
    apart = find_apart_of(data.run, data.state.name)
    return (apart.words, remedy_of(data.run, apart)) if apart else None


def phases_with_one_start(data: RunData) -> dict[str, float]:
    """Count one start: starting several times is not a fault of the settings."""
    start_s = data.phases.get("start", 0.0) / max(1, len(data.attempts))
    return {**data.phases, "start": start_s} if "start" in data.phases else dict(data.phases)


def values_at_validations(data: RunData, name: str) -> list[float]:
    """Return the last value of a curve up to each place where val_loss was measured."""
    points, validations = curve_points(data, name), curve_points(data, "val_loss")
    found: list[float] = []
    at = 0
    for place, _ in validations if points else []:
        while at + 1 < len(points) and points[at + 1][0] <= place:
            at += 1
        found.append(points[at][1])
    return found


def curve_points(data: RunData, name: str) -> list[tuple[float, float]]:
    return data.curves[name].points() if name in data.curves else []


def sample_values(data: RunData, name: str) -> list[float]:
    rows = (row for parts in data.system.values() for part in parts for row in part)
    return [value for row in rows if (value := finite(row.get(name))) is not None]


def cpus_per_node(data: RunData) -> int | None:
    """Return what the samples say; env.json is about the machine where the run was submitted."""
    name = as_table(data.config.get("cluster")).get("scheduler", LOCAL)
    local = find_recorded(name).is_here
    here = finite(data.env.get("cpus")) if local else None
    return int(min(sample_values(data, "cpus"), default=here or 0)) or None


def mean_cpu_percent(data: RunData) -> float | None:
    found = sample_values(data, "cpu_percent")
    return sum(found) / len(found) if found else None


def memory_use_mb(data: RunData) -> tuple[float | None, float | None]:
    """Return the most that a node used, and what was requested; without a request, what it has."""
    requested = parse_memory_mb(str(data.resources.get("mem") or ""))
    if requested:
        return max(sample_values(data, "rss_mb"), default=None), requested
    used = max(sample_values(data, "mem_used_mb"), default=None)
    return used, min(sample_values(data, "mem_total_mb"), default=None)
