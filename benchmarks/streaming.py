"""A run whose steps compute for longer than its data takes to read: how long it waits for data.

The recipe benchmarks/streamed reads rows of a file that is in the page cache, on one CPU, while a
wide layer computes.
"""

import json
import os
import statistics
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.control import RAMPUP
from benchmarks.measure import Line, spread_of

RECIPE = Path(__file__).parent / "streamed"
ROWS, COLUMNS = 12_000, 4096
AT_MOST_PERCENT = 3.0
BUSY = ("data", "compute", "communication")


def waiting_percent(file: Path) -> float:
    """Return the share of the training time in which rank 0 waited for data."""
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "RAMPUP_RUNS": folder, "XDG_STATE_HOME": folder}
        words = [
            f"file={file}",
            "width=1024",
            "epochs=2",
            "read_ahead=16",
            "checkpoint.every=never",
        ]
        argv = [RAMPUP, "run", str(RECIPE), *words, "--cpus-per-task", "1"]
        subprocess.run(argv, env=env, check=True, capture_output=True)
        done = subprocess.run([RAMPUP, "show", "--json"], env=env, check=True, capture_output=True)
    phases = json.loads(done.stdout)["phases"]
    return 100 * float(phases["data"]) / sum(float(phases[name]) for name in BUSY)


def lines(repeats: int = 3) -> Iterator[Line]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "rows.raw")
        numbers = np.random.default_rng(1)
        with open(file, "wb") as opened:
            for _ in range(0, ROWS, 1000):
                opened.write(numbers.standard_normal((1000, COLUMNS), np.float32).tobytes())
        found = [waiting_percent(file) for _ in range(repeats)]
    median = statistics.median(found)
    holds = median <= AT_MOST_PERCENT
    name, bound = "streamed, waiting for data", f"<= {AT_MOST_PERCENT:g} %"
    yield Line(name, median, None, None, spread_of(found), bound, holds, unit=" %")
