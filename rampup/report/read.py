"""Reads one run directory for a report: `read_run`, from a run to its `RunData`.

Called by build.py for each run. It only reads, and a run directory in any condition gives an
answer: what is missing, torn or foreign is named in `missing` and left out of the rest.
"""

import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from msgspec.structs import replace

from rampup.diagnose.advice import Undefined, advise
from rampup.diagnose.why.explain import explain
from rampup.report.data import LARGEST, NOT_MEASURED, Curve, RunData, advice_facts, finite
from rampup.rundir import opening
from rampup.rundir.damage import find_damage
from rampup.rundir.files import AttemptDir, RunDir
from rampup.rundir.history import Attempt, read_attempts
from rampup.rundir.records import Record
from rampup.runs.state import State, state_of
from rampup.runs.summary import NOT_METRICS, best_of, merged, reading_of, total_wall_s

LOG_LINES = 60
LOG_BYTES = 100_000
LONGEST_LINE = 400
PROFILE_LETTERS = 20_000
TERMINAL_CODES = re.compile(r"\x1b(\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)?|.)?")
UNKNOWN_PHASES = "the phases: rank 0 writes them when it ends, but it was killed"
ENDED_BADLY = ("failed", "timeout", "cancelled")
Read = TypeVar("Read")


def read_run(run: RunDir) -> RunData:
    data = RunData(run=run, missing=[])
    read_identity(data)
    read_metrics(data)
    last = run.last_attempt()
    if last is None:
        data.missing.append("attempts/: the run has not started, or they were not copied")
    else:
        read_attempt(data, last)
    data.notes = read_or_note(data, "the notes", lambda: advise(advice_facts(data)), [])
    return data


def read_or_note(data: RunData, what: str, read: Callable[[], Read], fallback: Read) -> Read:
    """Return what `read` finds. Files of a run may hold anything: what breaks their reader is named
    on the page, and the rest is still shown."""
    try:
        return read()
    except Exception as error:
        data.missing.append(
            f"{what} can't be determined: {type(error).__name__}: {str(error)[:200]}"
        )
        return fallback


def note_absence(data: RunData, words: str) -> None:
    """Name what should be there. A run that ended badly may not have come so far, and nobody can say
    what a command writes."""
    if data.state.name not in ENDED_BADLY and data.config.get("kind") != "command":
        data.missing.append(words)


# identity and attempts ----------------------------------------------------------------------------


def read_identity(data: RunData) -> None:
    run = data.run
    data.missing += read_or_note(data, "what is damaged", lambda: find_damage(run), [])
    data.identity, data.config, data.env = run.run, run.used_config, run.env
    given = run.path.name.split("-", 2)[-1].rpartition("-")[0]
    data.name = str(data.identity.get("name") or given or run.path.name)
    data.state = read_or_note(data, "the state", lambda: state_of(run), State("unknown"))
    if data.state.name in ENDED_BADLY:
        data.why = read_or_note(data, "why it ended", lambda: explain(run, data.state), None)
    if data.why is not None and data.why.known:
        data.state = replace(data.state, cause=data.why.finding.cause)
    data.attempts = read_or_note(data, "the attempts", lambda: read_attempts(run), [])
    data.wall_s = read_or_note(data, "the time it took", lambda: total_wall_s(run), None)


def read_attempt(data: RunData, last: AttemptDir) -> None:
    data.attempt = last.facts
    data.system = read_or_note(data, "CPU and memory", lambda: read_samples(data), {})
    data.start = read_or_note(data, "the start", lambda: last.event("start") or {}, {})
    data.loader = read_or_note(data, "the data loading", lambda: last.event("loaders") or {}, {})
    data.reading = read_or_note(data, "what was read", lambda: reading_of(data.run), {})
    read_phases(data)
    data.evaluation = read_or_note(data, "what was validated", lambda: read_evaluation(data), {})
    data.log_name, data.log = read_or_note(data, "the log", lambda: read_log(data, last), ("", ""))
    data.traceback = read_or_note(data, "the traceback", lambda: read_traceback(data, last), "")
    data.profile = read_or_note(data, "the profile", lambda: read_profile(last), "")


def read_evaluation(data: RunData) -> Record:
    """Return the evaluation of the newest attempt that has one."""
    found = (attempt.evaluation() for attempt in reversed(data.run.attempts()))
    return next(filter(None, found), {})


def read_phases(data: RunData) -> None:
    """Add up the phases of all attempts, as each rank 0 measured them. Of an attempt that was
    killed, only when its training began is known."""
    nothing: list[Record] = []
    is_measured = data.config.get("kind", "engine") == "engine"
    for attempt in data.attempts:
        events = read_or_note(data, "the phases", data.run.attempt(attempt.number).events, nothing)
        is_last = attempt is data.attempts[-1]
        seconds = phases_from_events(events)
        if not seconds and is_measured and (data.state.ended or not is_last):
            seconds = phases_from_times(attempt, events, data.has_several_attempts)
            if is_last:
                note_absence(data, UNKNOWN_PHASES)
        for name, value in seconds.items():
            data.phases[name] = data.phases.get(name, 0.0) + value
    # what is known comes first
    data.phases = dict(sorted(data.phases.items(), key=lambda it: it[0] == NOT_MEASURED))


def phases_from_events(events: list[Record]) -> dict[str, float]:
    """Return what rank 0 recorded at its end, also when it failed or was stopped."""
    found = [row["phases"] for row in events if row.get("phases")]
    seconds = found[-1] if found else {}
    return {str(name): value for name, value in seconds.items() if finite(value) is not None}


def phases_from_times(attempt: Attempt, events: list[Record], several: bool) -> dict[str, float]:
    """Return the start and the rest of an attempt whose rank 0 recorded no phases."""
    took_s = attempt.took_s
    if took_s is None:
        return {}
    trained = next((row.get("t") for row in events if row.get("what") == "start"), None)
    if trained is not None and attempt.began <= trained <= attempt.began + took_s:
        start_s = trained - attempt.began
        return {"start": start_s, NOT_MEASURED: took_s - start_s, "wall": took_s}
    return {NOT_MEASURED: took_s, "wall": took_s} if several else {}


def path_in_run(run: RunDir, path: Path) -> str:
    return str(path.relative_to(run.path))


def read_samples(data: RunData) -> dict[str, list[list[Record]]]:
    found: dict[str, list[list[Record]]] = {}
    for attempt in data.run.attempts():
        for node, rows in attempt.samples().items():
            found.setdefault(node, []).append([row for row in rows if "t" in row])
    if not found:
        note_absence(data, "system-*.jsonl: missing, so CPU and memory over time are not known")
    return found


# metrics ------------------------------------------------------------------------------------------


def read_metrics(data: RunData) -> None:
    none: list[Record] = []
    rows = read_or_note(data, "the metrics", data.run.history, none)
    if not rows and data.config.get("kind", "engine") == "engine":
        note_absence(data, "metrics.jsonl: missing or empty, so there are no curves")
    data.last = {key: value for key, value in merged(rows).items() if key != "t"}
    data.best = read_or_note(data, "the best value", lambda: best_of(data.run, rows), None)
    data.curves, data.undefined = build_curves(rows)


def build_curves(rows: list[Record]) -> tuple[dict[str, Curve], dict[str, Undefined]]:
    """Return one curve per metric, and where a metric was not a finite number."""
    at_epochs: dict[str, Curve] = {}
    between: dict[str, Curve] = {}
    undefined: dict[str, list[int]] = {}
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
                undefined.setdefault(name, []).append(int(place))
                curve = kind.get(name) or kind.setdefault(name, Curve([], []))
                if not curve.ys or curve.ys[-1] is not None:
                    curve.xs.append(place)
                    curve.ys.append(None)
    empty = Curve([], [])
    described = {}
    for name, places in undefined.items():
        curves = at_epochs.get(name, empty), between.get(name, empty)
        finite_at = [x for curve in curves for x, _ in curve.points()]
        described[name] = describe_undefined(places, finite_at)
    return choose_curves(at_epochs, between), described


def describe_undefined(places: list[int], finite_at: list[float]) -> Undefined:
    last = max(finite_at, default=-1.0)
    since = min((place for place in places if place > last), default=None)
    return Undefined(min(places), since, len(places), len(places) + len(finite_at))


def choose_curves(at_epochs: dict[str, Curve], between: dict[str, Curve]) -> dict[str, Curve]:
    """Choose the finer kind of each metric: the mean over an epoch and the value of one step do not
    belong on one line."""
    empty = Curve([], [])
    chosen = {
        name: max(at_epochs.get(name, empty), between.get(name, empty), key=lambda it: len(it.xs))
        for name in dict.fromkeys([*at_epochs, *between])
    }
    return {name: curve for name, curve in chosen.items() if any(y is not None for y in curve.ys)}


# log ----------------------------------------------------------------------------------------------


def read_log(data: RunData, attempt: AttemptDir) -> tuple[str, str]:
    """Return the name and the end of the log of the rank that matters; when no rank printed
    anything, of what the launcher printed."""
    rank = data.state.failed_rank if isinstance(data.state.failed_rank, int) else 0
    for path in (attempt.rank_log(rank), attempt.job_log, *reversed(data.run.slurm_logs())):
        if opening.measure(path):
            return path_in_run(data.run, path), read_tail(path)
    note_absence(data, f"{path_in_run(data.run, attempt.rank_log(rank))}: missing or empty")
    return "", ""


def read_profile(attempt: AttemptDir) -> str:
    """Return the beginning of the profile: the table is sorted by time."""
    file = attempt.profile_file()
    if file is None:
        return ""
    with open(opening.open_file(file), "rb") as opened:
        return opened.read(PROFILE_LETTERS).decode("utf-8", "replace")


def read_tail(path: Path) -> str:
    with open(opening.open_file(path), "rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - LOG_BYTES))
        text = file.read(LOG_BYTES).decode("utf-8", "replace")
    return "\n".join(plain_lines(text.split("\n"))[-LOG_LINES:])


def plain_lines(lines: Iterable[str]) -> list[str]:
    """Remove colours, and keep only the last state of a bar that was drawn over itself."""
    last_drawn = (TERMINAL_CODES.sub("", line).rstrip("\r").rpartition("\r")[2] for line in lines)
    found = [cut_line(line) for line in last_drawn]
    while found and not found[-1].strip():
        found.pop()
    return found


def cut_line(line: str) -> str:
    return line if len(line) <= LONGEST_LINE else f"{line[:LONGEST_LINE]} …"


def read_traceback(data: RunData, attempt: AttemptDir) -> str:
    errors = attempt.errors()
    mine = [error for error in errors if error.get("rank") == data.state.failed_rank] or errors
    text = str(mine[0].get("traceback") or mine[0].get("message") or "") if mine else ""
    return "\n".join(plain_lines(text.split("\n"))[-LOG_LINES:])
