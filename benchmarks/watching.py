"""One MNIST run of a minute with a stopwatch on its parts: what watching costs, and where a step's
time goes.

Two runs of a minute, one with and one without, differ by several percent on any shared machine, so
a cost below one percent can't be seen in their difference. It is measured inside one run instead:
the main thread's time in metrics (with the mirror for TensorBoard), progress and the clock of the
phases, the CPU time of all other threads of the rank, and that of all of rampup's processes around
it (launcher, sampler, the command that looks on and draws the bar on a terminal) while it trains.
"""

import json
import os
import shlex
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.control import RAMPUP
from benchmarks.measure import Line

AT_MOST = 0.01
WATCHING = ("clock of the phases", "progress", "metric rows")


def watched_run(epochs: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "RAMPUP_RUNS": folder, "XDG_STATE_HOME": folder}
        words = [str(Path(__file__).parent / "watched"), f"epochs={epochs}", "--cpus-per-task", "1"]
        argv = [RAMPUP, "run", *words, "checkpoint.every=never"]
        subprocess.run(
            ["script", "-qec", shlex.join(argv), "/dev/null"],
            env=env,
            check=True,
            capture_output=True,
        )
        (log,) = Path(folder).glob("*/attempts/1/rank-0.log")
        (last,) = [line for line in log.read_text().splitlines() if line.startswith("watched ")]
    found: dict[str, Any] = json.loads(last.removeprefix("watched "))
    return found


def seconds(found: dict[str, Any]) -> dict[str, float]:
    """The main thread's time in each part, without what the stopwatches took."""
    inside_ns, whole_ns = found["stopwatch_ns"]
    calls, spent = found["calls"], found["spent_ns"]
    parts = {
        part: (spent[part] - calls[part] * inside_ns) / 1e9
        for part in spent
        if part not in ("epochs", "nothing")
    }
    watches_s = sum(calls[part] for part in parts) * whole_ns / 1e9
    return {**parts, "the loop itself": spent["epochs"] / 1e9 - watches_s - sum(parts.values())}


def cost(found: dict[str, Any]) -> Line:
    parts = seconds(found)
    main, threads, processes = (
        sum(parts[part] for part in WATCHING),
        found["threads"],
        found["processes"],
    )
    spent, wall = main + threads + processes, found["wall"]
    spread = f"{main:.2f}+{threads:.2f}+{processes:.2f} s"
    return Line(
        "watching a run of a minute",
        spent,
        wall,
        spent / wall,
        spread,
        f"<= {AT_MOST:g}",
        spent <= AT_MOST * wall,
    )


def profile(found: dict[str, Any]) -> dict[str, float]:
    """Microseconds of a step by part."""
    steps = found["calls"]["forward pass and loss"]
    parts = {part: spent_s / steps * 1e6 for part, spent_s in seconds(found).items()}
    return {**parts, "whole": sum(parts.values())}


def lines(profiles: dict[str, dict[str, float]], epochs: int = 60) -> Iterator[Line]:
    found = watched_run(epochs)
    profiles["one MNIST step, microseconds"] = profile(found)
    yield cost(found)
