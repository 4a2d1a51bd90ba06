"""What a report says of one run, read from its directory: outcome, curves, time, machine, settings,
log, notes.

Called by build.py for each run. It reads only, and a run directory in any condition gives a story:
what is missing, torn or foreign is named in `missing` and left out of the rest.
"""

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from msgspec.structs import replace

from rampup.diagnose.advice import Undefined, advise
from rampup.diagnose.why.explain import explain
from rampup.report.facts import facts_of
from rampup.report.story import LARGEST, NOT_MEASURED, Curve, Story, finite
from rampup.rundir.damage import find_damage
from rampup.rundir.files import AttemptDir, RunDir, State
from rampup.rundir.history import Attempt, read_attempts
from rampup.rundir.records import Record, read_json
from rampup.runs.state import state_of
from rampup.runs.summary import NOT_METRICS, best_of, merged, total_wall_s

LOG_LINES = 60
LOG_BYTES = 100_000
LONGEST_LINE = 400
PROFILE_LETTERS = 20_000
TERMINAL_CODES = re.compile(r"\x1b(\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)?|.)?")
Read = TypeVar("Read")


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
    """Files of a run may hold anything: what breaks its reader is named on the page, and the rest
    is still shown."""
    try:
        return read()
    except Exception as error:
        story.missing.append(f"{what} can't be told: {type(error).__name__}: {str(error)[:200]}")
        return fallback


# identity and attempts ----------------------------------------------------------------------------


def read_identity(story: Story) -> None:
    run = story.run
    story.missing += tried("what is damaged", lambda: find_damage(run), [], story)
    story.identity, story.config, story.env = run.run, run.config, read_json(run.env_file)
    given = run.path.name.split("-", 2)[-1].rpartition("-")[0]
    story.name = str(story.identity.get("name") or given or run.path.name)
    story.state = tried("the state", lambda: told_state(run), State("unknown"), story)
    story.tries = tried("the attempts", lambda: read_attempts(run), [], story)
    story.wall_s = tried("the time it took", lambda: total_wall_s(run), None, story)


def told_state(run: RunDir) -> State:
    """Who cancelled says more than the signal that ended it: as `why` and the last words of `run`
    tell it."""
    state = state_of(run)
    return (
        replace(state, cause=explain(run, state).finding.cause)
        if state.name == "cancelled"
        else state
    )


def read_attempt(story: Story, last: AttemptDir) -> None:
    story.attempt = last.facts
    story.system = tried("CPU and memory", lambda: samples_of(story), {}, story)
    story.start = tried("the start", lambda: last.event("start") or {}, {}, story)
    story.loader = tried("the data loading", lambda: last.event("loaders") or {}, {}, story)
    read_phases(story)
    found = (attempt.evaluation() for attempt in reversed(story.run.attempts()))
    story.evaluation = tried("what was validated", lambda: next(filter(None, found), {}), {}, story)
    story.log_name, story.log = tried("the log", lambda: log_of(story, last), ("", ""), story)
    story.trace = tried("the traceback", lambda: trace_of(story, last), "", story)
    story.profile = tried("the profile", lambda: profile_of(last), "", story)


def read_phases(story: Story) -> None:
    """Over all attempts, as each rank 0 measured them; of one that was killed only when its
    training began is known."""
    nothing: list[Record] = []
    for attempt in story.tries:
        events = tried("the phases", story.run.attempt(attempt.number).events, nothing, story)
        seconds, last = measured(events), attempt is story.tries[-1]
        if (
            not seconds
            and story.config.get("kind", "engine") == "engine"
            and (story.state.ended or not last)
        ):
            seconds = by_its_times(attempt, events, len(story.tries) > 1)
            if last:
                story.missing.append(
                    "the phases: rank 0 writes them when it ends, and it could not"
                )
        for name, value in seconds.items():
            story.phases[name] = story.phases.get(name, 0.0) + value
    # what is known comes first
    story.phases = dict(sorted(story.phases.items(), key=lambda it: it[0] == NOT_MEASURED))


def measured(events: list[Record]) -> dict[str, float]:
    """What rank 0 wrote down at its end, also when it failed or was stopped."""
    found = [row["phases"] for row in events if row.get("phases")]
    seconds = found[-1] if found else {}
    return {str(name): value for name, value in seconds.items() if finite(value) is not None}


def by_its_times(attempt: Attempt, events: list[Record], several: bool) -> dict[str, float]:
    took, trained = (
        attempt.took_s,
        next((row.get("t") for row in events if row.get("what") == "start"), None),
    )
    if took is None:
        return {}
    if trained is not None and attempt.began <= trained <= attempt.began + took:
        start = trained - attempt.began
        return {"start": start, NOT_MEASURED: took - start, "wall": took}
    return {NOT_MEASURED: took, "wall": took} if several else {}


def inside(run: RunDir, path: Path) -> str:
    return str(path.relative_to(run.path))


def samples_of(story: Story) -> dict[str, list[list[Record]]]:
    found: dict[str, list[list[Record]]] = {}
    for attempt in story.run.attempts():
        for node, rows in attempt.samples().items():
            found.setdefault(node, []).append([row for row in rows if "t" in row])
    if not found:
        story.missing.append("system-*.jsonl: missing, so CPU and memory over time are not known")
    return found


# metrics ------------------------------------------------------------------------------------------


def read_metrics(story: Story) -> None:
    none: list[Record] = []
    rows = tried("the metrics", story.run.history, none, story)
    if not rows:
        story.missing.append("metrics.jsonl: missing or empty, so there are no curves")
    story.last = {key: value for key, value in merged(rows).items() if key != "t"}
    story.best = tried("the best value", lambda: best_of(story.run, rows), None, story)
    story.curves, story.undefined = curves_of(rows)


def curves_of(rows: list[Record]) -> tuple[dict[str, Curve], dict[str, Undefined]]:
    """One curve per metric, and where a metric was no number."""
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
    known = {
        name: where_undefined(places, at_epochs, between, name)
        for name, places in undefined.items()
    }
    return one_kind(at_epochs, between), known


def where_undefined(
    places: list[int], at_epochs: dict[str, Curve], between: dict[str, Curve], name: str
) -> Undefined:
    finite_at = [x for kind in (at_epochs, between) if name in kind for x, _ in kind[name].points()]
    last = max(finite_at, default=-1.0)
    since = min((place for place in places if place > last), default=None)
    return Undefined(min(places), since, len(places), len(places) + len(finite_at))


def one_kind(at_epochs: dict[str, Curve], between: dict[str, Curve]) -> dict[str, Curve]:
    """The mean over an epoch and the value of one step do not belong on one line: the finer kind is
    drawn."""
    empty = Curve([], [])
    chosen = {
        name: max(at_epochs.get(name, empty), between.get(name, empty), key=lambda it: len(it.xs))
        for name in dict.fromkeys([*at_epochs, *between])
    }
    return {name: curve for name, curve in chosen.items() if any(y is not None for y in curve.ys)}


# log ----------------------------------------------------------------------------------------------


def log_of(story: Story, attempt: AttemptDir) -> tuple[str, str]:
    """The end of what the rank that matters printed; when no rank spoke, of what the launcher
    said."""
    rank = story.state.failed_rank if isinstance(story.state.failed_rank, int) else 0
    for path in (attempt.rank_log(rank), attempt.job_log, *reversed(story.run.slurm_logs())):
        if path.is_file() and path.stat().st_size:
            return inside(story.run, path), tail(path)
    story.missing.append(f"{inside(story.run, attempt.rank_log(rank))}: missing or empty")
    return "", ""


def profile_of(attempt: AttemptDir) -> str:
    """Its beginning: the table is sorted by time."""
    file = attempt.profile_file()
    return file.read_text(encoding="utf-8", errors="replace")[:PROFILE_LETTERS] if file else ""


def tail(path: Path) -> str:
    with open(path, "rb") as file:
        file.seek(max(0, path.stat().st_size - LOG_BYTES))
        text = file.read().decode("utf-8", "replace")
    return "\n".join(plain_lines(text.split("\n"))[-LOG_LINES:])


def plain_lines(lines: Iterable[str]) -> list[str]:
    """Without colours, and of a bar that was drawn over itself only the last state."""
    last_drawn = (TERMINAL_CODES.sub("", line).rstrip("\r").rpartition("\r")[2] for line in lines)
    found = [
        line if len(line) <= LONGEST_LINE else f"{line[:LONGEST_LINE]} …" for line in last_drawn
    ]
    while found and not found[-1].strip():
        found.pop()
    return found


def trace_of(story: Story, attempt: AttemptDir) -> str:
    errors = attempt.errors()
    mine = [error for error in errors if error.get("rank") == story.state.failed_rank] or errors
    text = str(mine[0].get("traceback") or mine[0].get("message") or "") if mine else ""
    return "\n".join(plain_lines(text.split("\n"))[-LOG_LINES:])
