"""A Horovod script as courses teach it runs unchanged on this machine: one process, and several
under mpirun."""

import re
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
