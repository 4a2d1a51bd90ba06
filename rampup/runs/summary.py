"""What a reader says of a run: one object for machines, the same facts for people's tables. Reads,
never writes."""

from typing import Any

from rampup.core.metrics import is_number, lower_is_better
from rampup.errors import OUTCOME_CODES
from rampup.rundir.files import RunDir
from rampup.rundir.history import attempt_duration_s
from rampup.rundir.records import Record
from rampup.runs.state import State, state_of

NOT_METRICS = ("t", "step", "epoch")


def exit_code(state: State) -> int | None:
    """What `wait` and a foreground `run` exit with; None while it goes on."""
    return OUTCOME_CODES.get(state.name)


def describe(run: RunDir) -> dict[str, Any]:
    """The object that `run --json`, `wait --json` and `show --json` print."""
    state = state_of(run)
    history = run.history()
    return {
        "id": run.id,
        "dir": str(run.path),
        "name": run.run.get("name"),
        "state": state.name,
        "exit_code": exit_code(state),
        "cause": state.cause or None,
        "as_of_s": state.as_of_s,
        "attempts": len(run.attempt_numbers()),
        "metrics": merged(history),
        "best": best_of(run, history),
    }


def merged(history: list[Record]) -> Record:
    """The last value of every metric."""
    last: Record = {}
    for row in history:
        last.update(row)
    return last


def best_of(run: RunDir, history: list[Record]) -> Record | None:
    """The best row by the metric that the run monitors, if it monitors one."""
    train = run.config.get("train", {})
    metric = train.get("monitor")
    if not isinstance(metric, str):
        return _recorded_best(run)
    # ends of epochs
    rows = [
        row for row in history if "samples_s" in row and isinstance(row.get(metric), int | float)
    ]
    if not rows:
        return None
    lowest = lower_is_better(metric, train.get("monitor_mode", "auto"))
    best = (min if lowest else max)(rows, key=lambda row: row[metric])
    return {
        "metric": metric,
        "value": best[metric],
        "epoch": best.get("epoch"),
        "step": best.get("step"),
    }


def _recorded_best(run: RunDir) -> Record | None:
    """What an engine found best that chose the metric itself."""
    last = run.last_attempt()
    ends = [last.event(what) or {} for what in ("stopped", "end")] if last else []
    found = [end["best"] for end in ends if isinstance(end.get("best"), dict)]
    return found[-1] if found and {"metric", "value"} <= found[-1].keys() else None


def phases_of(run: RunDir) -> dict[str, float]:
    """Seconds of the last attempt by phase, as rank 0 measured them."""
    attempt = run.last_attempt()
    end = attempt.event("end") or attempt.event("stopped") if attempt else None
    return (
        {name: seconds for name, seconds in end.get("phases", {}).items() if is_number(seconds)}
        if end
        else {}
    )


def checkpoints_of(run: RunDir) -> dict[str, float]:
    """How many the last attempt wrote, and what they cost."""
    attempt = run.last_attempt()
    end = attempt.event("end") or attempt.event("stopped") if attempt else None
    cost = end.get("checkpoints") if end else None
    return (
        {name: value for name, value in cost.items() if is_number(value)}
        if isinstance(cost, dict)
        else {}
    )


def total_wall_s(run: RunDir) -> float | None:
    """Seconds over all attempts, without the time between them."""
    known = [
        seconds
        for attempt in run.attempts()
        if (seconds := attempt_duration_s(attempt, attempt.facts)) is not None
    ]
    return sum(known) if known else None
