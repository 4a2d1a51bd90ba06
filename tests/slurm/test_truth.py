"""Whatever happens to a job, no verb says something untrue of it."""

import json
import sys
from pathlib import Path

FAILS_LATER = """
import os, sys, time
if os.environ["RAMPUP_ATTEMPT"] == "2":
    sys.exit(7 * int(os.environ["RANK"]))
time.sleep(60)
"""


def job_in(run: Path) -> str:
    return json.loads((run / "control.jsonl").read_text().splitlines()[-1])["job"]


def submit(cli, sandbox, *words: str, command: tuple[str, ...]) -> str:
    return cli("run", *words, "--on", sandbox.name, "--", *command).stdout.strip()


def test_a_killed_rank_is_named(cli, sandbox) -> None:
    text = (
        "import os, time; os.kill(os.getpid(), 9) if os.environ['RANK'] == '1' else time.sleep(60)"
    )
    run = submit(cli, sandbox, "--nodes", "2", command=(sys.executable, cli.script(text)))
    told = cli.json("wait", run, check=100)
    assert (told["state"], "rank 1 on node" in told["cause"], "killed" in told["cause"]) == (
        "failed",
        True,
        True,
    )


def test_a_job_that_is_cancelled_by_hand(cli, sandbox, eventually) -> None:
    run = submit(cli, sandbox, command=("sleep", "60"))
    eventually(lambda: cli.json("show", run)["state"] == "running", what="running")
    sandbox.run("scancel", job_in(Path(cli.json("show", run)["dir"])))
    assert cli.json("wait", run, check=103)["state"] == "cancelled"


def test_a_preempted_run_waits_and_goes_on_as_its_second_attempt(cli, sandbox, eventually) -> None:
    argv = (sys.executable, cli.script(FAILS_LATER))
    victim = submit(cli, sandbox, "--nodes", "2", "--cpus-per-task", "8", command=argv)
    eventually(lambda: cli.json("show", victim)["state"] == "running", what="running")
    words = ("--nodes", "4", "--cpus-per-task", "8", "--partition", "urgent")
    urgent = submit(cli, sandbox, *words, command=("sleep", "4"))
    eventually(lambda: cli.json("show", victim)["state"] == "pending", what="back in the queue")
    assert cli.json("wait", urgent)["state"] == "completed"
    told = cli.json("wait", victim, check=100)
    assert told["attempts"] == 2
    assert "rank 1 on node" in told["cause"] and "exit code 7" in told["cause"], (
        "of the second attempt"
    )


def test_pmix_is_there_for_mpi(sandbox) -> None:
    said = sandbox.run(
        "srun", "--mpi=pmix", "--nodes=2", "--ntasks=4", "bash", "-c", "echo rank $PMIX_RANK"
    )
    assert sorted(said.splitlines()) == [f"rank {number}" for number in range(4)]


def test_a_missing_rank_ends_the_job_within_a_minute_and_is_named(
    slow_cli, run_with_a_missing_rank: Path
) -> None:
    told = slow_cli.json("wait", str(run_with_a_missing_rank), check=100)
    assert "rank 3 on node" in told["cause"] and "never connected" in told["cause"]
    facts = json.loads((run_with_a_missing_rank / "attempts" / "1" / "attempt.json").read_text())
    assert facts["ended"] - facts["started"] < 60


def test_the_time_limit_is_told_and_a_run_without_checkpoints_not_started_again(
    slow_cli, endless_run: Path
) -> None:
    told = slow_cli.json("wait", str(endless_run), check=104)
    assert (told["state"], told["attempts"], "time limit" in told["cause"]) == ("timeout", 1, True)
    assert "no checkpoint was added" in told["cause"]
