"""From a call to the first line of a function on two ranks of an existing Spark session:
`rampup.launch` against TorchDistributor, imports of torch included."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.first_step import environment
from benchmarks.measure import Line, not_slower

PROGRAM = Path(__file__).parent / "start" / "on_spark.py"
CONF = {
    "spark.master": "local-cluster[2,1,512]",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.log.level": "ERROR",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def measure(repeats: int) -> list[tuple[float, float]]:
    """The seconds of each pair, ours first."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / PROGRAM.name
        shutil.copyfile(PROGRAM, program)
        conf = " ".join(f"--conf {key}={value}" for key, value in CONF.items())
        own = {
            "RAMPUP_RUNS": f"{folder}/runs",
            "XDG_STATE_HOME": folder,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_WORKER_DIR": f"{folder}/work",
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_SUBMIT_ARGS": f"{conf} pyspark-shell",
            "PYTHONPATH": os.getcwd(),
        }
        done = subprocess.run(
            [sys.executable, "-W", "ignore", str(program), str(repeats)],
            env={**environment(), **own},
            cwd=folder,
            check=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
    return [read_pair(line) for line in done.stdout.splitlines() if line.startswith("pair ")]


def read_pair(line: str) -> tuple[float, float]:
    _, ours, theirs = line.split()
    return float(ours), float(theirs)


def lines(repeats: int = 7) -> Iterator[Line]:
    yield not_slower("launch on Spark / TorchDistributor", measure(repeats), at_most=1.1)
