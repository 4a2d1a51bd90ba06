"""Other people's programs on two nodes of a real Slurm, as they are."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from rampup import contact
from rampup.rundir.files import RunDir

from .conftest import Sandbox, started

RANK_CHECK = Path(__file__).parents[1] / "foreign" / "rank_check.py"
SAVES = RANK_CHECK.with_name("saves_on_term.py")
WRAPPER = """#!/bin/bash
trap 'echo heard; exit 85' USR2
[ "$RAMPUP_ATTEMPT" = 1 ] || { echo again; exit 0; }
echo ready
while :; do sleep 0.1; done
"""
FOREIGN = Path(__file__).parents[1] / "foreign"
MEET, APART = str(FOREIGN / "meet.py"), str(FOREIGN / "apart.py")
FIRST_LOOK = "FIRST_LOOK_S, SLOWER, RAREST_LOOK_S = 0.3, "
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
    long as it takes until that counts. It takes about half a minute: eight jobs of two nodes."""
    meet = {"srun": "ddp", "torchrun": "tensor_parallel", "pmix": "mpi", "mpirun": "mpi"}
    apart = ("srun", "torchrun", "mpirun")
    met = {name: start_on_two(sandbox, name, MEET, kind, "1.5") for name, kind in meet.items()}
    alone = {name: start_on_two(sandbox, name, APART, "server", "5.2") for name in apart}
    unseen = start_unseen(sandbox)
    for launcher, run in met.items():
        assert wait(sandbox, run)["state"] == "completed", launcher
        seen = RunDir(run).attempt(1)
        records = contact.read_records(lambda rank, of=seen: of.contact_file(rank).read_text(), 2)
        assert contact.judge(records, 2) == contact.MET, (launcher, records)
    for launcher, run in alone.items():
        found = wait(sandbox, run)
        assert (found["state"], found["apart"]) == ("completed", 2), launcher

    found = wait(sandbox, unseen)
    assert (found["state"], found["apart"]) == ("completed", 0)
    texts = [RunDir(unseen).attempt(1).contact_file(rank).read_text() for rank in (0, 1)]
    records = [contact.parse_record(text) for text in texts]
    for record in records:
        assert record is not None and record["cpu_s"] > contact.ENOUGH_CPU_S
        assert (record["looks"], record["met"]) == (1, ""), record


def start_unseen(sandbox: Sandbox) -> Path:
    """Two ranks below torchrun that meet for a moment, and are looked at only when they have ended:
    nothing is left then but closed connections to the agents."""
    words = ("--nodes", "2", "--launcher", "torchrun", "--slurm", "hold")
    run = started(sandbox, *words, command=(sys.executable, MEET, "gloo", "5.2"))
    watch = run / "contact.py"
    text = watch.read_text()
    assert FIRST_LOOK in text
    watch.write_text(text.replace(FIRST_LOOK, "FIRST_LOOK_S, SLOWER, RAREST_LOOK_S = 1000.0, "))
    job = json.loads((run / "control.jsonl").read_text().splitlines()[-1])["job"]
    sandbox.run("scontrol", "release", job)
    return run


# a second life ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["resumes-itself", "saves-on-term", "traps-usr2"])
def test_programs_survive_three_time_limits(
    slow_sandbox: Sandbox, lives: dict[str, Path], name: str
) -> None:
    """They were started before all other tests, and take four minutes: Slurm's shortest time limit
    is a minute."""
    run = lives[name]
    done = slow_sandbox.call("timeout", "110", "rampup", "wait", str(run), "--json")
    if not done.stdout:  # a call takes two minutes at most
        done = slow_sandbox.call("timeout", "110", "rampup", "wait", str(run), "--json")
    assert json.loads(done.stdout)["state"] == "completed"
    attempts = RunDir(run).attempts()
    assert [attempt.facts["outcome"] for attempt in attempts] == [*["again"] * 3, "completed"]
    assert [attempt.facts["why"] for attempt in attempts[:3]] == ["timeout"] * 3
    assert "complete after 4 starts" in attempts[3].rank_log(0).read_text()
    if name == "resumes-itself":
        rows = RunDir(run).history()
        assert [row["step"] for row in rows] == list(range(1, len(rows) + 1))
        printed = "".join(attempt.rank_log(0).read_text() for attempt in attempts)
        assert [row["loss"] for row in rows] == [
            float(line.split()[1]) for line in printed.splitlines() if line.startswith("loss")
        ]
        assert RunDir(run).attempt(1).samples(), "CPU and memory of a command under Slurm"


def test_a_preempted_program_gets_the_signal_that_it_asked_for(sandbox: Sandbox) -> None:
    """And one that ends well after `cancel --save` has not completed."""
    words = ("--stop-signal", "TERM", "--partition", "debug")
    saved = sandbox.cwd / "preempted.txt"
    run = started(sandbox, *words, command=(sys.executable, str(SAVES), "2", str(saved)))
    log = RunDir(run).attempt(1).rank_log(0)
    sandbox.wait_for(lambda: log.exists() and "start 1" in log.read_text(), "it runs", 60)
    sandbox.sbatch("sleep 0.5", "--partition=urgent", "--nodes=4", "--exclusive")
    assert wait(sandbox, run)["state"] == "completed"
    facts = [attempt.facts for attempt in RunDir(run).attempts()]
    assert [(each["outcome"], each.get("why")) for each in facts] == [
        ("again", "requeued"),  # by Slurm itself, at once
        ("completed", ""),
    ]
    assert "saved 1" in log.read_text()

    other = started(sandbox, *words, command=(sys.executable, str(SAVES), "2", "cancelled.txt"))
    log = RunDir(other).attempt(1).rank_log(0)
    sandbox.wait_for(lambda: log.exists() and "start 1" in log.read_text(), "it runs", 60)
    sandbox.rampup("cancel", "--save", str(other))
    assert wait(sandbox, other)["state"] == "cancelled"
    assert "saved 1" in log.read_text()
