"""--launcher mpirun without a scheduler: programs of MPI on this machine, watched as all others
are."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli

pytest.importorskip("mpi4py", reason="the programs of these tests use mpi4py")
if shutil.which("mpirun") is None:
    pytest.skip("there is no mpirun here: apt-get install openmpi-bin", allow_module_level=True)

SUM = """
import os, sys
from mpi4py import MPI

world = MPI.COMM_WORLD
assert (str(world.rank), str(world.size)) == (os.environ["RANK"], os.environ["WORLD_SIZE"])
print("sum", world.allreduce(world.rank + 1), "of", os.environ["LOCAL_WORLD_SIZE"], flush=True)
sys.exit(0 if os.environ["RAMPUP_ATTEMPT"] == "2" else 85)
"""
DIES = """
import os, time

if os.environ["RANK"] == "1":
    {}["key"]
time.sleep(60)
"""
SLEEPS = """
import os, time
from pathlib import Path
from mpi4py import MPI

Path(f"pid-{MPI.COMM_WORLD.rank}").write_text(str(os.getpid()))
time.sleep(60)
"""
THREE = ("--launcher", "mpirun", "--tasks-per-node", "3")


def test_ranks_find_each_other_and_are_started_again(cli: Cli) -> None:
    run = cli.run_command("python", cli.script(SUM), options=THREE)
    assert (run["state"], run["attempts"]) == ("completed", 2)
    for rank in ("0", "1", "2"):
        assert "sum 6 of 3" in cli("logs", run["id"], "--rank", rank).stdout


def test_a_rank_that_fails_ends_all_and_is_named(cli: Cli) -> None:
    run = cli.run_command("python", cli.script(DIES), options=THREE, check=100)
    facts = json.loads((Path(run["dir"]) / "attempts" / "1" / "attempt.json").read_text())
    assert facts["failed_rank"] == 1 and facts["cause"].startswith("rank 1 exited with code 1")
    assert facts["wall_s"] < 30
    assert "KeyError: 'key'" in cli("why", run["id"]).stdout


def test_cancelled_it_leaves_nothing_behind(cli: Cli, eventually: Any) -> None:
    run = cli("run", "--detach", *THREE, "--", "python", cli.script(SLEEPS)).stdout.strip()
    files = [cli.cwd / f"pid-{rank}" for rank in range(3)]
    eventually(
        lambda: all(file.exists() and file.read_text() for file in files),
        30,
        "the ranks have begun",
    )
    cli("cancel", run)
    assert cli.json("show", run)["state"] == "cancelled"
    for file in files:
        with pytest.raises(ProcessLookupError):
            os.kill(int(file.read_text()), 0)


def test_without_mpirun_nothing_is_started(cli: Cli) -> None:
    refused = cli("run", *THREE, "--", "/bin/true", check=3, PATH="/nowhere")
    assert (
        "mpirun was not found on this machine" in refused.stderr
        and "hint: install Open MPI" in refused.stderr
    )
    assert not cli.runs.exists() or not list(cli.runs.glob("2*"))
