"""What a report says of one run, read from its directory: outcome, curves, time, machine, settings, log, notes.

Called by build.py for each run. It reads only, and a run directory in any condition gives a story: what is missing,
torn or foreign is named in `missing` and left out of the rest.
"""

import math
import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct

from rampup.diagnose.advice import Facts, advise
from rampup.diagnose.catalogue import Finding
from rampup.records import Record, read_json, read_jsonl
from rampup.rundir import AttemptDir, RunDir, State
from rampup.schedulers.slurm_units import memory_mb
from rampup.states import state_of
from rampup.summary import NOT_METRICS, best_of, merged, phases_of, total_wall_s

LOG_LINES = 60
LOG_BYTES = 100_000
LONGEST_LINE = 400
LARGEST = 1e300
TERMINAL_CODES = re.compile(r"\x1b(\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)?|.)?")
Read = TypeVar("Read")


class Curve(Struct):
    xs: list[float]
    ys: list[float]


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
    attempts: int = 0
    wall_s: float | None = None
    last: Record = {}
    best: Record | None = None
    curves: dict[str, Curve] = {}
    undefined: dict[str, int] = {}
    phases: dict[str, float] = {}
    system: dict[str, list[list[Record]]] = {}
    """For each node the samples, one list per attempt."""
    log_name: str = ""
    log: str = ""
    trace: str = ""
    notes: list[Finding] = []

    @property
    def train(self) -> Record:
        return table(self.config.get("train"))

    @property
    def resources(self) -> Record:
        return table(self.config.get("resources"))


def collect(run: RunDir) -> Story:
    story = Story(run=run, missing=[])
    read_identity(story)
    read_metrics(story)
    last = run.last_attempt()
    if last is None:
        story.missing.append("attempts/: the run has not started, or they were not copied")
    else:
        read_attempt(story, last)
    story.notes = tried("the notes", lambda: advise(facts_of(story)), [], story)
    return story


def tried(what: str, read: Callable[[], Read], fallback: Read, story: Story) -> Read:
    """Files of a run may hold anything: what breaks its reader is named on the page, and the rest is still shown."""
    try:
        return read()
    except Exception as error:
        story.missing.append(f"{what} can't be told: {type(error).__name__}: {str(error)[:200]}")
        return fallback


def table(value: Any) -> Record:
    return value if isinstance(value, dict) else {}


def finite(value: Any) -> float | None:
    """The value as a number that can be drawn."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if -LARGEST < value < LARGEST and math.isfinite(value) else None


# identity and attempts --------------------------------------------------------------------------------------------


def read_identity(story: Story) -> None:
    run = story.run
    story.identity, story.config = whole_file(run.run_file, story), whole_file(run.config_file, story)
    story.env = whole_file(run.env_file, story)
    given = run.path.name.split("-", 2)[-1].rpartition("-")[0]
    story.name = str(story.identity.get("name") or given or run.path.name)
    story.state = tried("the state", lambda: state_of(run), State("unknown"), story)
    if not isinstance(story.state.name, str) or not isinstance(story.state.cause, str):
        story.state = State("unknown", None, "what its launcher wrote down makes no sense")
    story.attempts = len(run.attempt_numbers())
    story.wall_s = tried("the time it took", lambda: total_wall_s(run), None, story)


def whole_file(path: Path, story: Story) -> Record:
    found = read_json(path)
    if not found:
        story.missing.append(f"{path.name}: {'torn or foreign' if os.path.exists(path) else 'missing'}")
    return found


def read_attempt(story: Story, last: AttemptDir) -> None:
    run = story.run
    story.attempt = last.facts
    if not story.attempt:
        story.missing.append(
            f"{inside(run, last.facts_file)}: {'torn' if os.path.exists(last.facts_file) else 'missing'}"
        )
    nothing: dict[str, float] = {}
    story.start = tried("the start", lambda: last.event("start") or {}, {}, story)
    seconds = tried("the phases", lambda: phases_of(run), nothing, story)
    story.phases = {str(name): value for name, value in seconds.items() if finite(value) is not None}
    story.system = tried("CPU and memory", lambda: samples_of(story), {}, story)
    story.log_name, story.log = tried("the log", lambda: log_of(story, last), ("", ""), story)
    story.trace = tried("the traceback", lambda: trace_of(story, last), "", story)


def inside(run: RunDir, path: Path) -> str:
    return str(path.relative_to(run.path))


def samples_of(story: Story) -> dict[str, list[list[Record]]]:
    found: dict[str, list[list[Record]]] = {}
    for attempt in story.run.attempts():
        before, after = attempt.system_file("*").name.split("*")
        for path in sorted(attempt.path.glob(f"{before}*{after}")):
            node = path.name[len(before) : -len(after)]
            rows = [row for row in read_jsonl(path) if finite(row.get("t")) is not None]
            count_broken(path, story)
            found.setdefault(node, []).append(rows)
    if not found:
        story.missing.append("system-*.jsonl: missing, so CPU and memory over time are not known")
    return found


def count_broken(path: Path, story: Story) -> None:
    """Say how many lines of a growing file are no records."""
    try:
        lines = path.read_bytes().splitlines()
    except OSError:
        return
    broken = sum(1 for line in lines if line.strip() and not (line[:1] == b"{" and line.rstrip()[-1:] == b"}"))
    if broken:
        words = "1 line is" if broken == 1 else f"{broken} lines are"
        story.missing.append(f"{inside(story.run, path)}: {words} torn or foreign and left out")


# metrics ----------------------------------------------------------------------------------------------------------


def read_metrics(story: Story) -> None:
    none: list[Record] = []
    rows = tried("the metrics", story.run.history, none, story)
    for attempt in story.run.attempts():
        for path in (attempt.metrics_file, attempt.events_file):
            count_broken(path, story)
    if not rows:
        story.missing.append("metrics.jsonl: missing or empty, so there are no curves")
    story.last = {key: value for key, value in merged(rows).items() if key != "t"}
    story.best = tried("the best value", lambda: best_of(story.run, rows), None, story)
    story.curves, story.undefined = curves_of(rows)


def curves_of(rows: list[Record]) -> tuple[dict[str, Curve], dict[str, int]]:
    """One curve per metric, and where a metric was no number."""
    at_epochs: dict[str, Curve] = {}
    between: dict[str, Curve] = {}
    undefined: dict[str, int] = {}
    for index, row in enumerate(rows):
        step = finite(row.get("step"))
        place = index if step is None else step
        kind = at_epochs if "samples_s" in row else between
        for name, value in row.items():
            if name in NOT_METRICS:
                continue
            # most rows pass by the first test, and there may be a million of them
            number = value if type(value) is float and -LARGEST < value < LARGEST else finite(value)
            if number is not None:
                curve = kind.get(name) or kind.setdefault(name, Curve([], []))
                curve.xs.append(place)
                curve.ys.append(number)
            elif value is None or isinstance(value, float):
                undefined.setdefault(name, int(place))
    return one_kind(at_epochs, between), undefined


def one_kind(at_epochs: dict[str, Curve], between: dict[str, Curve]) -> dict[str, Curve]:
    """The mean over an epoch and the value of one step do not belong on one line: the finer kind is drawn."""
    names = dict.fromkeys([*at_epochs, *between])
    empty = Curve([], [])
    return {
        name: max(at_epochs.get(name, empty), between.get(name, empty), key=lambda it: len(it.xs)) for name in names
    }


# log --------------------------------------------------------------------------------------------------------------


def log_of(story: Story, attempt: AttemptDir) -> tuple[str, str]:
    """The end of what the rank that matters printed; when no rank spoke, of what the launcher said."""
    rank = story.state.failed_rank if isinstance(story.state.failed_rank, int) else 0
    for path in (attempt.rank_log(rank), attempt.job_log, *reversed(story.run.slurm_logs())):
        if path.is_file() and path.stat().st_size:
            return inside(story.run, path), tail(path)
    story.missing.append(f"{inside(story.run, attempt.rank_log(rank))}: missing or empty")
    return "", ""


def tail(path: Path) -> str:
    with open(path, "rb") as file:
        file.seek(max(0, path.stat().st_size - LOG_BYTES))
        text = file.read().decode("utf-8", "replace")
    return "\n".join(plain_lines(text.split("\n"))[-LOG_LINES:])


def plain_lines(lines: Iterable[str]) -> list[str]:
    """Without colours, and of a bar that was drawn over itself only the last state."""
    last_drawn = (TERMINAL_CODES.sub("", line).rstrip("\r").rpartition("\r")[2] for line in lines)
    found = [line if len(line) <= LONGEST_LINE else f"{line[:LONGEST_LINE]} …" for line in last_drawn]
    while found and not found[-1].strip():
        found.pop()
    return found


def trace_of(story: Story, attempt: AttemptDir) -> str:
    errors = attempt.errors()
    mine = [error for error in errors if error.get("rank") == story.state.failed_rank] or errors
    text = str(mine[0].get("traceback") or mine[0].get("message") or "") if mine else ""
    return "\n".join(plain_lines(text.split("\n"))[-LOG_LINES:])


# facts for the notes ----------------------------------------------------------------------------------------------


def facts_of(story: Story) -> Facts:
    """What the rules of advice.py look at."""
    local = table(story.config.get("cluster")).get("scheduler", "local") == "local"
    ranks, nodes, threads = (
        int(finite(found) or 0)
        for found in (story.attempt.get("world_size"), story.resources.get("nodes"), story.start.get("threads"))
    )
    used, limit = memory_of(story)
    return Facts(
        wall_s=story.phases.get("wall", story.wall_s or 0.0),
        phases=story.phases,
        train=story.train,
        resources=story.resources,
        ranks=max(1, ranks),
        nodes=max(1, nodes),
        threads=threads or None,
        device=str(story.start.get("device", "cpu")),
        cpus=int(finite(story.env.get("cpus")) or 0) or None if local else None,
        cpu_percent=busy_of(story),
        mem_used_mb=used,
        mem_limit_mb=limit,
        undefined=story.undefined,
        train_losses=tuple(at_places(story, "train_loss")),
        val_losses=tuple(story.curves["val_loss"].ys) if "val_loss" in story.curves else (),
    )


def at_places(story: Story, name: str) -> list[float]:
    """The values of a curve where val_loss was measured: the last one up to there."""
    curve, places = story.curves.get(name), story.curves.get("val_loss")
    if curve is None or places is None:
        return []
    found, at = [], 0
    for place in places.xs:
        while at + 1 < len(curve.xs) and curve.xs[at + 1] <= place:
            at += 1
        found.append(curve.ys[at])
    return found


def samples(story: Story, name: str) -> list[float]:
    rows = (row for parts in story.system.values() for part in parts for row in part)
    return [value for row in rows if (value := finite(row.get(name))) is not None]


def busy_of(story: Story) -> float | None:
    found = samples(story, "cpu_percent")
    return sum(found) / len(found) if found else None


def memory_of(story: Story) -> tuple[float | None, float | None]:
    """The most that a node used, against what was asked for; without a request, against what it has."""
    asked = memory_mb(str(story.resources.get("mem") or ""))
    if asked:
        return max(samples(story, "rss_mb"), default=None), asked
    return max(samples(story, "mem_used_mb"), default=None), min(samples(story, "mem_total_mb"), default=None)
