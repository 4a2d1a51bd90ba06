"""What a reader says of a run: one object for machines, the same facts for people's tables. Reads, never writes."""

from typing import Any

from rampup.launchers.outcome import CODES
from rampup.rundir import Record, RunDir, State

NOT_METRICS = ("t", "step", "epoch")


def exit_code(state: State) -> int | None:
    """What `wait` and a foreground `run` exit with; None while it goes on."""
    return CODES.get(state.name)


def describe(run: RunDir) -> dict[str, Any]:
    """The object that `run --json`, `wait --json` and `show --json` print."""
    state = run.state()
    history = run.history()
    return {
        "id": run.id,
        "dir": str(run.path),
        "name": run.run.get("name"),
        "state": state.name,
        "exit_code": exit_code(state),
        "cause": state.cause or None,
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
    metric, mode = train.get("monitor"), train.get("monitor_mode", "max")
    rows = [row for row in history if isinstance(row.get(metric), int | float)]
    if not rows:
        return None
    best = (min if mode == "min" else max)(rows, key=lambda row: row[metric])
    return {"metric": metric, "value": best[metric], "epoch": best.get("epoch"), "step": best.get("step")}


def phases_of(run: RunDir) -> dict[str, float]:
    """Seconds of the last attempt by phase, as rank 0 measured them."""
    attempt = run.last_attempt()
    end = attempt.event("end") if attempt else None
    return dict(end.get("phases", {})) if end else {}


def wall_s(run: RunDir) -> float | None:
    """Seconds over all attempts that ended."""
    spent = [attempt.facts.get("wall_s") for attempt in run.attempts()]
    known = [seconds for seconds in spent if seconds is not None]
    return sum(known) if known else None
