"""What a reader says of a run: one object for machines, the same facts for people's tables. Reads,
never writes."""

import shlex
from collections.abc import Mapping
from typing import Any

from rampup.config.clusters import LOCAL
from rampup.core.engines import is_target
from rampup.core.metrics import is_number, lower_is_better
from rampup.errors import OUTCOME_CODES
from rampup.rundir import clocks
from rampup.rundir.files import RunDir
from rampup.rundir.history import attempt_duration_s, read_attempt
from rampup.rundir.records import Record, read_json
from rampup.rundir.schema import READING
from rampup.runs.apart import find_apart_of
from rampup.runs.state import State, state_of

NOT_METRICS = ("t", "step", "epoch")
PRESETS = ("--smoke", "--dev")
"""Options that set several settings at once."""


def exit_code(state: State) -> int | None:
    """Return what `wait` and a foreground `run` exit with; None before the run has ended."""
    return OUTCOME_CODES.get(state.name)


def describe(run: RunDir) -> dict[str, Any]:
    """The object that `run --json`, `wait --json` and `show --json` print."""
    state = state_of(run)
    history = run.history()
    place = place_of(run)
    return {
        "id": run.id,
        "dir": str(run.path),
        "name": run.run.get("name"),
        "state": state.name,
        "exit_code": exit_code(state),
        "cause": state.cause or None,
        "as_of_s": state.as_of_s,
        "attempts": len(run.attempt_numbers()),
        "cluster": place["cluster"],
        "job": place["job"],
        "nodes": place["nodes"],
        "apart": apart.ranks if (apart := find_apart_of(run, state.name)) else 0,
        "progress": progress_of(run) if state.name == "running" else None,
        "metrics": merged(history),
        "best": best_of(run, history),
    }


def place_of(run: RunDir) -> Record:
    """Where it runs or ran: the cluster, its newest job, the nodes and the number of ranks; None
    for what is not known."""
    attempt = run.last_attempt()
    facts = attempt.facts if attempt else {}
    jobs = run.jobs()
    return {
        "cluster": run.config.get("cluster", {}).get("name"),
        "job": jobs[-1] if jobs else None,
        "nodes": facts.get("nodes") or facts.get("host"),
        "ranks": facts.get("world_size"),
    }


def progress_of(run: RunDir) -> Record | None:
    """How far the newest attempt is, by the heartbeat of its rank 0; None before the first one."""
    directory = run.last_attempt()
    beat = read_json(directory.progress_file) if directory else {}
    if directory is None or not is_number(beat.get("step")):
        return None
    attempt = read_attempt(directory)
    step = int(beat["step"])
    steps = int(beat["steps"]) if is_number(beat.get("steps")) else None
    left_s = None
    if steps is not None and attempt.step_s > 0:
        left_s = max(0.0, attempt.step_s * (steps - step) - clocks.age(beat.get("t", 0.0)))
    return {
        "step": step,
        "steps": steps,
        "epoch": whole(beat.get("epoch")),
        "epochs": beat.get("epochs"),
        "left_s": left_s,
    }


def whole(value: Any) -> Any:
    """Return 3 for 3.0; the heartbeat keeps floats, because an epoch may be a part of one."""
    return int(value) if is_number(value) and value == int(value) else value


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


def reading_of(run: RunDir) -> dict[str, float]:
    """Return what rank 0 of the last attempt has read sample by sample; empty for data in memory."""
    attempt = run.last_attempt()
    found = attempt.event("data") if attempt else None
    return {name: found[name] for name in READING if name in found} if found else {}


def describe_reading(found: Mapping[str, float]) -> str:
    """Say how much was read, how fast, and what came from the node's own disk."""
    if not found.get("bytes") or not found.get("seconds"):
        return ""
    rate = found["bytes"] / found["seconds"]
    words = [f"{found['bytes'] / 1e9:.3g} GB read, {rate / 1e6:.3g} MB/s"]
    if found.get("readers"):
        words.append(f"{found['readers']:.0f} readers" if found["readers"] != 1 else "1 reader")
    if found.get("reads"):
        words.append(f"{found.get('hits', 0) / found['reads']:.0%} from the node's disk")
    if found.get("staged_bytes"):
        speed = found["staged_bytes"] / max(1e-3, found.get("staged_s", 0.0))
        words.append(f"{found['staged_bytes'] / 1e9:.3g} GB staged at {speed / 1e6:.3g} MB/s")
    return ", ".join(words)


def total_wall_s(run: RunDir) -> float | None:
    """Seconds over all attempts, without the time between them."""
    known = [
        seconds
        for attempt in run.attempts()
        if (seconds := attempt_duration_s(attempt, attempt.facts)) is not None
    ]
    return sum(known) if known else None


def command_of(run: RunDir) -> str:
    """The command that starts the same run, by what was set on the command line; for a function the
    call in Python."""
    from rampup.core.redact import redact_words  # not for those who list many runs

    config = run.config
    function = config.get("function")
    if isinstance(function, dict):
        return f"rampup.launch({function.get('name')}, ...)"
    own = config.get("command", [])
    origins = config.get("origins", {})
    files = [
        origin
        for name, origin in origins.items()
        if origin.endswith(".toml") and origin != "recipe.toml" and not name.startswith("cluster.")
    ]
    words = ["rampup", "run", *_target_of(config, files), *_typed_words(config, origins)]
    cluster = config.get("cluster", {}).get("name")
    if cluster not in (None, LOCAL):
        words += ["--on", cluster]
    words += ["--", *own] if own and not files else []
    return shlex.join(redact_words(words))


def _target_of(config: Record, files: list[str]) -> list[str]:
    if files:
        return files[:1]
    if is_target(config.get("engine"), config.get("folder")):
        return [config.get("entry") or "?"]
    found = config.get("recipe") if config.get("builtin") else config.get("source")
    return [found] if found else []


def _typed_words(config: Record, origins: Record) -> list[str]:
    """Settings as key=value, options with their values, and --smoke and --dev alone."""
    words: list[str] = []
    for name, origin in origins.items():
        table, _, key = name.partition(".")
        value = config.get(table, {}).get(key)
        if origin in PRESETS:
            words += [origin] if origin not in words else []
        elif origin == "command line":
            words.append(f"{key if table == 'train' else name}={_as_typed(value)}")
        elif origin.startswith("--") and value is True:  # a flag
            words.append(origin)
        elif origin.startswith("--"):
            is_repeated = origin == "--slurm" or table == "program"
            each = value if is_repeated and isinstance(value, list) else [_as_typed(value)]
            words += [word for one in each for word in (origin, one)]
    return words


def _as_typed(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(_as_typed(each) for each in value)
    if isinstance(value, bool):
        return str(value).lower()
    return "none" if value is None else str(value)
