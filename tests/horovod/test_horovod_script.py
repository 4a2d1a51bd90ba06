"""A Horovod script as courses teach it runs unchanged on this machine: one process, and several
under mpirun."""

import re
import subprocess
import sys
from pathlib import Path

from conftest import Cli

SCRIPT = Path(__file__).parents[1] / "foreign" / "horovod_ten_steps.py"
TOLD = re.compile(r"^rank (\d) of (\d) on \S+: rates \((.*)\), weights (\d+)$", re.MULTILINE)


def test_one_process(cli: Cli, horovod_env: Path) -> None:
    run = cli.run_command("python", str(SCRIPT), options=("--env", str(horovod_env)))
    ((rank, size, rates, _),) = TOLD.findall(cli("logs", run["id"]).stdout)
    assert (rank, size, rates) == ("0", "1", "0.01, 0.01, 0.001")


def test_two_ranks_of_mpirun_hold_the_same_weights(cli: Cli, horovod_env: Path) -> None:
    options = ("--env", str(horovod_env), "--launcher", "mpirun", "--tasks-per-node", "2")
    run = cli.run_command("python", str(SCRIPT), options=options)
    told = [TOLD.search(cli("logs", run["id"], "--rank", rank).stdout) for rank in ("0", "1")]
    assert [found.groups()[:3] for found in told] == [
        (rank, "2", "0.02, 0.02, 0.002") for rank in ("0", "1")
    ]
    assert told[0][4] == told[1][4]
    assert (cli.cwd / "ten_steps.h5").exists()


LAUNCHED = """
import sys
import rampup

def add():
    import horovod.tensorflow as hvd
    import tensorflow as tf

    hvd.init()
    return [hvd.size(), float(hvd.allreduce(tf.constant(hvd.rank() + 1.0), op=hvd.Sum))]

if __name__ == "__main__":
    print("joined", rampup.launch(add, np=2, launcher="mpirun", env=sys.argv[1]))
"""


def test_a_launched_function_uses_horovod(cli: Cli, horovod_env: Path) -> None:
    """As `HorovodRunner(np=2).run(train)`: MPI starts the ranks, the function calls hvd.init()."""
    script = cli.script(LAUNCHED, "by_horovod.py")
    done = subprocess.run(
        [sys.executable, script, str(horovod_env)],
        cwd=cli.cwd,
        env=cli.env,
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert "joined [2, 3.0]" in done.stdout, done.stderr
