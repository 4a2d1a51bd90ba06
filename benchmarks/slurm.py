"""From the command to the first line of the user's code: `rampup run --on sandbox` against sbatch
by hand; and how long 200 runs take to submit."""

import itertools
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.control import RAMPUP
from benchmarks.measure import Line, absolute

REPEATS = 5
AT_MOST_S = 2.0
RUNS, ARRAY, SWEEP_S = 200, 50, 3.0
FIRST_LINE = "import sys, time; open(sys.argv[1], 'w').write(str(time.time()))"


@contextmanager
def sandbox() -> Iterator[dict[str, str]]:
    """The environment of a sandbox that is taken down afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        own = {
            "XDG_STATE_HOME": f"{folder}/state",
            "XDG_CONFIG_HOME": f"{folder}/config",
            "RAMPUP_RUNS": f"{folder}/runs",
        }
        env = {**os.environ, **own, "SLURM_CONF": f"{folder}/state/rampup/sandbox/bench/slurm.conf"}
        run = {"env": env, "check": True, "capture_output": True}
        options = ["--nodes", "2", "--max-array-size", str(ARRAY)]
        subprocess.run([RAMPUP, "sandbox", "up", "--name", "bench", *options], **run)  # type: ignore[call-overload]
        try:
            yield env
        finally:
            subprocess.run([RAMPUP, "sandbox", "down", "--name", "bench"], **run)  # type: ignore[call-overload]


def to_first_line(argv: list[str], stamp: Path, env: dict[str, str]) -> float:
    stamp.unlink(missing_ok=True)
    begun = time.time()
    subprocess.run(argv, env=env, cwd=stamp.parent, check=True, capture_output=True)
    while not stamp.exists() or not stamp.read_text():
        time.sleep(0.01)
    spent = float(stamp.read_text()) - begun
    time.sleep(1)  # the node is free again
    return spent


def sweep_line(env: dict[str, str], folder: str) -> Line:
    """The jobs are held, so that what is measured is not disturbed by what was submitted."""
    names = (f"sweep{number}" for number in itertools.count())
    values = ",".join(map(str, range(RUNS)))

    def submit() -> None:
        words = [
            RAMPUP,
            "sweep",
            f"p={values}",
            "--on",
            "bench",
            "--name",
            next(names),
            "--slurm",
            "hold",
            "--",
            "true",
        ]
        subprocess.run(words, env=env, cwd=folder, check=True, capture_output=True)

    line = absolute(
        f"`rampup sweep`, {RUNS} runs in {RUNS // ARRAY} arrays", submit, SWEEP_S, repeats=3
    )
    subprocess.run(["scancel", f"--user={os.getuid()}"], env=env, check=True)
    return line


def lines() -> Iterator[Line]:
    if shutil.which("sbatch") is None:
        print(
            "rampup run --on sandbox: left out (apt-get install slurm-wlm slurmdbd munge mariadb-server)"
        )
        return
    with sandbox() as env, tempfile.TemporaryDirectory() as folder:
        yield sweep_line(env, folder)
        stamp, script = Path(folder) / "stamp", Path(folder) / "job.sh"
        program = [sys.executable, "-c", FIRST_LINE, str(stamp)]
        script.write_text(f'#!/bin/bash\nsrun {sys.executable} -c "{FIRST_LINE}" {stamp}\n')
        by_hand = ["sbatch", "--nodes=1", "--ntasks-per-node=1", "--output=/dev/null", str(script)]
        ours = [RAMPUP, "run", "--on", "bench", "--", *program]
        pairs = [
            (to_first_line(ours, stamp, env), to_first_line(by_hand, stamp, env))
            for _ in range(REPEATS)
        ]
    mine, theirs = (statistics.median(side) for side in zip(*pairs, strict=True))
    more = sorted(one - other for one, other in pairs)
    spread = f"{more[0]:+.2f}..{more[-1]:+.2f} s"
    bound = f"<= {AT_MOST_S:g} s more"
    yield Line(
        "rampup run / sbatch, to first line",
        mine,
        theirs,
        mine / theirs,
        spread,
        bound,
        mine - theirs <= AT_MOST_S,
    )
