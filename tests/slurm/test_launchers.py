"""Every launcher on 2 nodes x 2 ranks, with a real all-reduce by a program that knows nothing of
rampup."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from rampup.rundir.files import RunDir

from .conftest import Sandbox

TORCH = """
import json, os
import torch, torch.distributed as dist

dist.init_process_group("gloo")
found = torch.tensor([float(dist.get_rank() + 1)])
dist.all_reduce(found)
told = {name: os.environ[name] for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK")}
print("told", json.dumps({**told, "node": os.environ["SLURMD_NODENAME"], "sum": float(found)}), flush=True)
dist.destroy_process_group()
"""
MPI = """
import json, os
from mpi4py import MPI

world = MPI.COMM_WORLD
assert (str(world.rank), str(world.size)) == (os.environ["RANK"], os.environ["WORLD_SIZE"])
told = {name: os.environ[name] for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK")}
told |= {"node": os.environ["SLURMD_NODENAME"], "sum": world.allreduce(world.rank + 1)}
print("told", json.dumps(told), flush=True)
"""
PROGRAMS = {"srun": TORCH, "torchrun": TORCH, "pmix": MPI, "mpirun": MPI}
AGAIN = "\nimport sys\nsys.exit(0 if os.environ['RAMPUP_ATTEMPT'] == '2' else 85)\n"


def start(cli: Any, sandbox: Sandbox, launcher: str, *words: str, check: int = 0) -> RunDir:
    size = ("--nodes", "2", "--tasks-per-node", "2", "--cpus-per-task", "1")
    done = cli(
        "run",
        "--on",
        sandbox.name,
        "--launcher",
        launcher,
        "--follow",
        "--json",
        *size,
        *words,
        check=check,
    )
    return RunDir(json.loads(done.stdout.splitlines()[-1])["dir"])


def told(run: RunDir, attempt: int) -> list[dict[str, Any]]:
    logs = [run.attempt(attempt).rank_log(rank).read_text() for rank in range(4)]
    return [
        json.loads(line[5:])
        for log in logs
        for line in log.splitlines()
        if line.startswith("told ")
    ]


@pytest.mark.parametrize("launcher", PROGRAMS)
def test_a_foreign_program_runs_untouched_and_ranks_stay_in_their_places(
    cli, sandbox: Sandbox, launcher: str
) -> None:
    script = cli.script(PROGRAMS[launcher] + AGAIN)
    run = start(cli, sandbox, launcher, "--", sys.executable, script)
    first, second = told(run, 1), told(run, 2)
    assert [row["RANK"] for row in first] == ["0", "1", "2", "3"]
    assert [row["LOCAL_RANK"] for row in first] == ["0", "1", "0", "1"]
    assert [row["GROUP_RANK"] for row in first] == ["0", "0", "1", "1"]
    assert {(row["WORLD_SIZE"], row["LOCAL_WORLD_SIZE"], row["sum"]) for row in first} == {
        ("4", "2", 10)
    }
    assert [row["node"] for row in first] == [first[0]["node"]] * 2 + [first[2]["node"]] * 2
    assert first[0]["node"] < first[2]["node"]
    assert [row["RANK"] for row in second] == ["0", "1", "2", "3"], (
        "started again with the same order"
    )


@pytest.mark.parametrize("launcher", ["torchrun", "mpirun"])
def test_a_failing_rank_ends_all_and_is_named(cli, sandbox: Sandbox, launcher: str) -> None:
    text = "import os, time\nif os.environ['RANK'] == '2': {}['key']\ntime.sleep(60)\n"
    run = start(cli, sandbox, launcher, "--", sys.executable, cli.script(text), check=100)
    facts = run.attempt(1).facts
    assert facts["outcome"] == "failed" and facts["ended"] - facts["started"] < 40
    assert "KeyError: 'key'" in run.attempt(1).rank_log(2).read_text()


def test_a_recipe_ends_the_same_under_torchrun_as_under_srun(cli, sandbox: Sandbox) -> None:
    found = [
        start(cli, sandbox, launcher, "digits", "epochs=2").history()[-1]["train_loss"]
        for launcher in ("srun", "torchrun")
    ]
    assert found[0] == found[1]


def test_a_launcher_that_does_not_fit_is_refused(cli) -> None:
    refused = cli("run", "digits", "--launcher", "torchrun", check=3)
    assert "spawn" in refused.stderr
    assert Path(cli.runs).exists() is False
