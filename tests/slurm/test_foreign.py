"""Other people's programs on two nodes of a real Slurm, as they are."""

import json
import sys
from pathlib import Path
from typing import Any

from rampup import contact
from rampup.rundir.files import RunDir

from .conftest import Sandbox, started

RANK_CHECK = Path(__file__).parents[1] / "foreign" / "rank_check.py"
WRAPPER = """#!/bin/bash
trap 'echo heard; exit 85' USR2
[ "$RAMPUP_ATTEMPT" = 1 ] || { echo again; exit 0; }
echo ready
while :; do sleep 0.1; done
"""
FOREIGN = Path(__file__).parents[1] / "foreign"
MEET, APART = str(FOREIGN / "meet.py"), str(FOREIGN / "apart.py")
MPI_HELLO = "from mpi4py import MPI\nprint(MPI.COMM_WORLD.Get_size())\n"


def wait(sandbox: Sandbox, run: Path) -> dict[str, Any]:
    done = sandbox.call("timeout", "60", "rampup", "wait", str(run), "--json")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def logs_of(run: Path, attempt: int = 1) -> list[str]:
    return [RunDir(run).attempt(attempt).rank_log(rank).read_text() for rank in (0, 1)]


def test_programs_as_they_are_on_two_nodes(sandbox: Sandbox) -> None:
    """At once: a program that looks for RANK, one of MPI that plain srun can't start, and a shell
    script that asks for a restart when it gets SIGUSR2. It takes up to half a minute: three jobs of
    two nodes, and one of them twice."""
    (sandbox.cwd / "wrap.sh").write_text(WRAPPER)
    (sandbox.cwd / "hello.py").write_text(MPI_HELLO)
    two = ("--nodes", "2")
    check = started(sandbox, *two, command=(sys.executable, str(RANK_CHECK)))
    hello = started(sandbox, *two, command=(sys.executable, "hello.py"))
    wrapped = started(sandbox, *two, command=("bash", "wrap.sh"))

    log = RunDir(wrapped).attempt(1).rank_log(1)
    sandbox.wait_for(lambda: log.exists() and "ready" in log.read_text(), "the wrapper waits", 60)
    job = RunDir(wrapped).attempt(1).facts["job"]
    sandbox.run("scancel", "--signal=USR2", f"{job}.0")
    assert wait(sandbox, wrapped)["state"] == "completed"
    assert all(text.startswith("ready\n") and "heard\n" in text for text in logs_of(wrapped))
    assert logs_of(wrapped, 2) == ["again\n"] * 2

    assert wait(sandbox, check)["state"] == "completed"
    assert logs_of(check) == ["together 2\n"] * 2

    if wait(sandbox, hello)["state"] == "failed":  # an MPI that can do without is fine
        found = json.loads(sandbox.rampup("why", str(hello), "--json").stdout)
        assert found["problem"] == "mpi-by-srun", found
        assert "--launcher mpirun" in found["remedy"]


def start_on_two(sandbox: Sandbox, launcher: str, program: str, kind: str, cpu_s: str) -> Path:
    options = ("--nodes", "2", "--launcher", launcher)
    return started(sandbox, *options, command=(sys.executable, program, kind, cpu_s))


def test_ranks_of_two_nodes_that_never_met_are_named_and_others_are_not(sandbox: Sandbox) -> None:
    """At once, for each launcher: programs that meet, and some that do the same work twice, for as
    long as it takes until that counts. It takes about half a minute: seven jobs of two nodes."""
    meet = {"srun": "ddp", "torchrun": "tensor_parallel", "pmix": "mpi", "mpirun": "mpi"}
    apart = ("srun", "torchrun", "mpirun")
    met = {name: start_on_two(sandbox, name, MEET, kind, "1.5") for name, kind in meet.items()}
    alone = {name: start_on_two(sandbox, name, APART, "server", "5.2") for name in apart}
    for launcher, run in met.items():
        assert wait(sandbox, run)["state"] == "completed", launcher
        seen = RunDir(run).attempt(1)
        records = contact.read_records(lambda rank, of=seen: of.contact_file(rank).read_text(), 2)
        assert contact.judge(records, 2) == contact.MET, (launcher, records)
    for launcher, run in alone.items():
        found = wait(sandbox, run)
        assert (found["state"], found["apart"]) == ("completed", 2), launcher
