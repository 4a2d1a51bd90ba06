"""From the start of a script to the first line of a function on two ranks: `rampup.launch` against
torch.multiprocessing.spawn, imports of torch included. Both sides report when rank 0 began."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.first_step import environment
from benchmarks.measure import Line, not_slower

HERE = Path(__file__).parent / "start"


def spend(script: str) -> float:
    """The seconds from before the process began to the function's first line."""
    with tempfile.TemporaryDirectory() as folder:
        own = {"RAMPUP_RUNS": f"{folder}/runs", "XDG_STATE_HOME": folder}
        program = Path(folder) / script
        program.write_bytes((HERE / script).read_bytes())
        argv = [sys.executable, str(program), str(time.time())]
        done = subprocess.run(
            argv,
            env={**environment(), **own, "PYTHONPATH": os.getcwd()},
            cwd=folder,
            check=True,
            capture_output=True,
            text=True,
        )
    return float(done.stdout.splitlines()[-1].removeprefix("began "))


def lines(repeats: int = 7) -> Iterator[Line]:
    spend("by_launch.py"), spend("by_spawn.py")  # warm caches are the common case
    pairs = [(spend("by_launch.py"), spend("by_spawn.py")) for _ in range(repeats)]
    yield not_slower("launch np=2 / mp.spawn", pairs, at_most=1.2)
