"""What is said when a run has ended, for people and as JSON: outcome, metrics, where the time went,
what to do next.

Called by `run`, `resume` and `wait`; `show` uses the single lines.
"""

import os
import shlex
import sys
from pathlib import Path
from typing import Any

from rampup.cli import output, width
from rampup.core.harmless import escape_line
from rampup.rundir import opening
from rampup.rundir.files import RunDir
from rampup.runs.apart import find_apart_of, remedy_of
from rampup.runs.state import State, state_of
from rampup.runs.summary import (
    best_of,
    checkpoints_of,
    describe,
    exit_code,
    merged,
    phases_of,
    total_wall_s,
)

TRACE_LINES, TRACE_BYTES = 25, 65_536
MOST_METRICS = 50
"""More are not printed, even where a line may have any length."""
LONGEST_NAME = 30
"""On a terminal the middle of a longer name of a metric is left out."""


def report_end(run: RunDir, launcher_code: int | None, as_json: bool, followed: bool = True) -> int:
    """Report how the run ended, and return the exit code of the command line. `followed`: what rank
    0 printed is on the screen."""
    if not run.run_file.exists():
        output.say(f"failed: the run directory {run.path} vanished")
        return launcher_code or 100
    state = state_of(run)
    code = exit_code(state)
    if code is None:
        code = launcher_code or 100
    if as_json:
        output.emit_json(describe(run))
        return code
    if state.name == "completed":
        report_success(run)
    else:
        report_failure(run, state, followed)
    say_apart(run, state)
    if sys.stdout.isatty() and state.name != "cancelled":  # who stops a run wants the prompt
        from rampup.cli.report import write_after_run

        write_after_run(run)
    output.next_step(next_command(run, state), tensorboard_command(run, state))
    return code


def say_apart(run: RunDir, state: State) -> None:
    """Say that the ranks never met, and what helps: the same work was done several times."""
    apart = find_apart_of(run, state.name)
    if apart is not None:
        output.say(f"note: {apart.words}")
        output.say(f"hint: {remedy_of(run, apart)}")


def report_success(run: RunDir) -> None:
    history = run.history()
    spent = total_wall_s(run)
    took = f" in {output.duration(spent)}" if spent is not None else ""
    output.say(f"{output.paint_state('completed', stream=sys.stderr)}{took}")
    if run.config.get("smoke"):
        of_command = ": the whole command ran; nothing was resumed"
        done = ": one step, one checkpoint, one resume" if run.config["engine"] else of_command
        output.say(f"smoke test passed{done}")
    lines = (
        metrics_line(merged(history), width.columns(sys.stderr)),
        best_line(best_of(run, history)),
        phases_line(phases_of(run), width.columns(sys.stderr)),
        checkpoints_line(checkpoints_of(run)),
    )
    for line in filter(None, lines):
        output.say(line)


def metrics_line(last: dict[str, Any], room: int | None) -> str:
    """Return the last values: as many as fit in `room` columns, or the first without a terminal."""
    shown = [
        f"{key if room is None else shorten_name(escape_line(key))} {output.number(value)}"
        for key, value in last.items()
        if key not in ("t", "step", "epoch")
    ]
    if room is None and len(shown) > MOST_METRICS:
        left = f"and {len(shown) - MOST_METRICS:,} more: --history"
        shown = [*shown[:MOST_METRICS], left]
    return width.join_fitting("last: ", shown, room) if shown else ""


def shorten_name(metric: str) -> str:
    """Return the name of a metric, short enough that others fit beside it."""
    return width.shorten_middle(metric, LONGEST_NAME)


def best_line(best: dict[str, Any] | None) -> str:
    if best is None:
        return ""
    when = f"epoch {best['epoch']}" if best.get("epoch") is not None else f"step {best['step']}"
    return f"best: {best['metric']} {output.number(best['value'])} at {when}"


def phases_line(phases: dict[str, float], room: int | None) -> str:
    wall = phases.get("wall", 0.0)
    if wall <= 0:
        return ""
    parts = [
        f"{name} {seconds / wall:.0%}"
        for name, seconds in phases.items()
        if name != "wall" and seconds / wall >= 0.005
    ]
    return width.join_folded("time: ", [*parts, f"of {output.duration(wall)}"], room)


def checkpoints_line(cost: dict[str, float]) -> str:
    if not cost.get("count"):
        return ""
    writes = output.count(int(cost["count"]), "write")
    return f"checkpoints: {writes}, {cost.get('share', 0.0):.1%} of the time"


def report_failure(run: RunDir, state: State, followed: bool) -> None:
    from rampup.diagnose.why.explain import explain  # not for runs that went well

    name = state.name if state.name != "timeout" else "timed out"
    answer = explain(run, state)
    cause = answer.finding.cause if answer.known else state.cause or "cause unknown"
    output.say(f"{output.paint_state(state.name, name, sys.stderr)}{add_cause(cause)}")
    trace = read_traceback(run, state)
    has_hint = trace.startswith("hint:")
    if trace and not (has_hint and followed and state.failed_rank == 0):
        output.say_lines(trace)
    remedy = answer.finding.remedy if answer.known and not has_hint else ""
    if remedy and remedy != next_command(run, state):
        output.say(f"hint: {remedy}")


def add_cause(cause: str) -> str:
    """Return what follows `cancelled`: ` (Ctrl-C)`, or after a colon a cause that says more."""
    by = cause.removeprefix("cancelled by ")
    return f": {cause}" if by == cause else f" ({by})"


def next_command(run: RunDir, state: State) -> str:
    """Return the command that shows the log of a run that failed, resumes it where it has saved, or
    shows the run."""
    if state.name in ("cancelled", "timeout") and any(run.checkpoints.glob("step-*")):
        return f"rampup resume {run.id}"
    if state.name not in ("completed", "cancelled"):
        return logs_command(run, state)
    return f"rampup show {run.id}"


def tensorboard_command(run: RunDir, state: State) -> str:
    """Return the command that shows the curves of a run that completed or was cancelled; empty
    where there are none, or something else comes first."""
    shows = next_command(run, state) == f"rampup show {run.id}"
    if not shows or not run.tensorboard.is_dir():
        return ""
    return f"tensorboard --logdir {shlex.quote(relative_path(run.tensorboard))}"


def relative_path(path: Path) -> str:
    """Return a path below the current directory as seen from here."""
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)


def logs_command(run: RunDir, state: State) -> str:
    """Return the command that shows the log of the rank that failed."""
    return f"rampup logs {run.id}" + (f" --rank {state.failed_rank}" if state.failed_rank else "")


def read_traceback(run: RunDir, state: State) -> str:
    """Return the traceback of the rank that failed first. Rank 0's output was on the screen
    already."""
    attempt = run.last_attempt()
    if attempt is None or state.failed_rank is None:
        return ""
    mine = [error for error in attempt.errors() if error.get("rank") == state.failed_rank]
    if mine and mine[0].get("hint"):
        return f"hint: {mine[0]['hint']}"
    if state.failed_rank == 0:
        return ""
    text = str(mine[0].get("traceback", "")) if mine else ""
    if not mine:
        text = opening.read_text(attempt.rank_log(state.failed_rank), TRACE_BYTES)
    return "\n".join(
        f"  [rank {state.failed_rank}] {line}" for line in text.splitlines()[-TRACE_LINES:]
    )
