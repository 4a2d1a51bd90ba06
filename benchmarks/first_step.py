"""From `rampup run digits` to its first step, against a script that does nothing else.

Both sides tell themselves when the step was done and what CPU time was spent until then; ours
counts all processes of the run. With two ranks the other side is two scripts, started together.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks.control import RAMPUP
from benchmarks.measure import Line, not_slower
from rampup.datasets.digits import CSV

HERE = Path(__file__).parent / "start"
BOUNDS = {1: ("first step / script", 1.4), 2: ("two first steps / scripts", 1.5)}
"""By the number of ranks: the name of the line, and how many times as long it may take."""


class Spent(NamedTuple):
    wall_s: float
    cpu_s: float


def environment() -> dict[str, str]:
    """Python may keep what it has compiled, as it does for everybody who does not forbid it."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "OMP_NUM_THREADS": "1"}


def told(text: str) -> tuple[float, float]:
    """When the first step was done, and the CPU seconds until then."""
    (line,) = [line for line in text.splitlines() if line.startswith("stepped ")]
    _, done, cpu_s = line.split()
    return float(done), float(cpu_s)


def with_rampup(ranks: int) -> Spent:
    with tempfile.TemporaryDirectory() as folder:
        own = {"RAMPUP_RUNS": folder, "XDG_STATE_HOME": folder, "PYTHONPATH": str(HERE)}
        argv = [RAMPUP, "run", "digits", "max_steps=1", "--tasks-per-node", str(ranks)]
        begun = time.time()
        subprocess.run(argv, env={**environment(), **own}, check=True, capture_output=True)
        logs = list(Path(folder).glob("*/attempts/1/rank-*.log"))
        found = [told(log.read_text()) for log in logs]
    assert len(found) == ranks
    return Spent(max(done for done, _ in found) - begun, max(cpu_s for _, cpu_s in found))


def with_scripts(count: int) -> Spent:
    argv, begun = [sys.executable, str(HERE / "lean.py"), str(CSV)], time.time()
    pipe, env = subprocess.PIPE, environment()
    scripts = [subprocess.Popen(argv, stdout=pipe, env=env, text=True) for _ in range(count)]
    found = [told(script.communicate()[0]) for script in scripts]
    return Spent(max(done for done, _ in found) - begun, sum(cpu_s for _, cpu_s in found))


def lines(repeats: int = 7) -> Iterator[Line]:
    for ranks, (about, at_most) in BOUNDS.items():
        with_rampup(ranks), with_scripts(ranks)  # warm caches are the common case
        pairs = [(with_rampup(ranks), with_scripts(ranks)) for _ in range(repeats)]
        walls = [(ours.wall_s, theirs.wall_s) for ours, theirs in pairs]
        cpus = [(ours.cpu_s, theirs.cpu_s) for ours, theirs in pairs]
        yield not_slower(f"{about}, time", walls, at_most)
        yield not_slower(f"{about}, CPU", cpus, at_most)
