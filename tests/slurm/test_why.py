"""`rampup why` on a real Slurm: what broke there is told in Slurm's own words, and what did not is
left alone."""

import json
import sys
from pathlib import Path
from typing import Any

from rampup.rundir.files import RunDir

from .conftest import Sandbox

TWO_NODES = ("--nodes", "2")
BROKEN = {
    # problem: options, what rank 1 does, what the first line says, what the remedy says
    "exception": (
        TWO_NODES,
        "{}['key']",
        "rank 1: KeyError: 'key', at exception.py:2",
        "correct exception.py:2",
    ),
    "killed": (TWO_NODES, "os.kill(os.getpid(), 9)", "rank 1 on node", "sacct -j"),
    "segmentation-fault": (
        TWO_NODES,
        "os.kill(os.getpid(), 11)",
        "rank 1 on node",
        "PYTHONFAULTHANDLER=1",
    ),
    "program-missing": (
        TWO_NODES,
        "os._exit(os.system('nosuch') // 256)",
        "could not start nosuch",
        "PATH",
    ),
    "not-known": (TWO_NODES, "print('Killed'); sys.exit(7)", "not known: rank 1", "--rank 1"),
}


def submit(cli: Any, sandbox: Sandbox, *words: str, command: tuple[str, ...]) -> dict[str, Any]:
    done = cli("run", "--on", sandbox.name, "--json", *words, "--", *command)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def job_of(run: dict[str, Any]) -> str:
    submitted = RunDir(run["dir"]).recorded("submitted")
    assert submitted is not None
    return str(submitted["job"])


def test_ranks_that_fail(cli, sandbox: Sandbox) -> None:
    """All at once: they share the nodes."""
    runs = {}
    for problem, (options, action, _, _) in BROKEN.items():
        text = f"import os, sys, time\nif os.environ['RANK'] == '1': {action}\ntime.sleep(60)\n"
        runs[problem] = submit(
            cli, sandbox, *options, command=(sys.executable, cli.script(text, f"{problem}.py"))
        )
    for problem, run in runs.items():
        cli("wait", run["id"], check=100)
        found = cli.json("why", run["id"])
        _, _, cause, remedy = BROKEN[problem]
        assert (found["problem"], found["rank"], found["known"]) == (
            problem,
            1,
            problem != "not-known",
        ), found
        assert cause in found["cause"] and remedy in found["remedy"], found
        assert found["evidence"][0]["file"].startswith(("attempts/1/", "slurm-")), found
    assert "cause: rank 1: KeyError: 'key'" in cli("show", runs["exception"]["id"]).stdout


def test_nothing_is_wrong_with_these(cli, sandbox: Sandbox, eventually) -> None:
    scary = cli.script(
        "print('Error: Killed, CUDA out of memory\\nslurmstepd: error: Detected 1 oom-kill event')"
    )
    done = submit(cli, sandbox, command=(sys.executable, scary))
    waits = submit(cli, sandbox, "--slurm", "hold", command=("true",))
    goes_on, ended = (submit(cli, sandbox, command=("sleep", "120")) for _ in range(2))
    cli("wait", done["id"])
    found = cli.json("why", done["id"])
    assert (found["problem"], found["remedy"], found["evidence"]) == ("completed", None, [])
    found = cli.json("why", waits["id"])
    assert found["problem"] == "pending" and "held by you" in found["cause"]
    names = [goes_on["id"], ended["id"]]
    eventually(
        lambda: {cli.json("show", name)["state"] for name in names} == {"running"}, what="both run"
    )
    assert cli.json("why", goes_on["id"])["problem"] == "running"
    cli("cancel", waits["id"], goes_on["id"])
    for run in (waits, goes_on):
        found = cli.json("why", run["id"])
        assert (found["problem"], found["cause"]) == (
            "cancelled",
            "cancelled by rampup cancel",
        )
    sandbox.run("scancel", job_of(ended))
    cli("wait", ended["id"], check=103)
    found = cli.json("why", ended["id"])
    assert (
        found["problem"] == "cancelled-elsewhere" and "ended the job with scancel" in found["cause"]
    )


def test_a_layout_that_was_changed_by_hand(cli, sandbox: Sandbox) -> None:
    run = submit(cli, sandbox, "--tasks-per-node", "2", command=("true",))
    cli("wait", run["id"])
    script = Path(run["dir"]) / "job.sh"
    script.write_text(
        script.read_text()
        .replace("--ntasks=2", "--ntasks=1")
        .replace("--ntasks-per-node=2", "-n 1")
    )
    sandbox.run("sbatch", "--wait", str(script), check=None)
    found = cli.json("why", run["id"])
    assert found["problem"] == "wrong-layout"
    assert "1 tasks were started, the run has 2 ranks" in found["cause"]
    assert "--ntasks-per-node=2" in found["remedy"]


def test_a_preempted_attempt_is_told_while_the_run_goes_on(
    cli, sandbox: Sandbox, eventually
) -> None:
    size = ("--nodes", "4", "--cpus-per-task", "8")
    victim = submit(cli, sandbox, *size, command=("sleep", "60"))
    eventually(lambda: cli.json("show", victim["id"])["state"] == "running", what="running")
    urgent = submit(cli, sandbox, *size, "--partition", "urgent", command=("sleep", "1"))
    cli("wait", urgent["id"])
    found = cli.json("why", victim["id"])
    assert found["problem"] in ("pending", "running")
    assert "attempt 1: a job with a higher priority took its nodes (preemption)" in found["before"]
    cli("cancel", victim["id"])


def test_a_lost_node(cli, another: Sandbox, eventually) -> None:
    another.up("--nodes", "2", "--no-accounting")
    cli.env["XDG_CONFIG_HOME"] = another.env["XDG_CONFIG_HOME"]
    run = submit(cli, another, "--nodes", "2", "--slurm", "no-requeue", command=("sleep", "60"))
    log = Path(run["dir"]) / "attempts" / "1" / "rank-1.log"
    eventually(log.exists, what="the second rank")
    another.run("scontrol", "update", "nodename=node2", "state=down", "reason=smoke")
    cli("wait", run["id"], check=100)
    found = cli.json("why", run["id"])
    assert found["problem"] == "node-lost" and "node2 failed" in found["cause"]
    assert "--exclude node2" in found["remedy"]
    assert any("Node failure on node2" in clue["text"] for clue in found["evidence"])


def test_a_missing_rank(slow_cli, run_with_a_missing_rank: Path) -> None:
    slow_cli("wait", str(run_with_a_missing_rank), check=100)
    found = slow_cli.json("why", str(run_with_a_missing_rank))
    assert found["problem"] == "rank-missing" and "rank 3 on node" in found["cause"]
    assert "--rank 3" in found["remedy"] and "slurm-" in found["remedy"]


def test_the_time_limit(slow_cli, endless_run: Path) -> None:
    slow_cli("wait", str(endless_run), check=104)
    found = slow_cli.json("why", str(endless_run))
    assert (found["problem"], found["state"]) == ("time-limit", "timeout")
    assert "the time limit of 0-00:01:00 was reached" in found["cause"] and found[
        "remedy"
    ].endswith(" --time 0-00:02:00")
