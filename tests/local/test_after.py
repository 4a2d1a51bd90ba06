"""`rampup run --after RUN`: on this machine a run waits for others, and never begins if one of them
ends badly."""

import json
import signal
import time
from pathlib import Path
from typing import Any

GATE = ("sh", "-c", "while [ ! -e open ]; do sleep 0.1; done; exit $(cat open)")


def start(cli: Any, *words: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(cli("run", "--detach", "--json", *words).stdout)
    return found


def wait(cli: Any, run: str) -> dict[str, Any]:
    found: dict[str, Any] = cli.json("wait", run, "--timeout", "60", check=None)
    return found


def test_a_run_waits_for_others_and_a_chain_ends_with_the_one_that_fails(cli: Any) -> None:
    first = start(cli, "--", *GATE)["id"]
    second = start(cli, "--after", first, "--", "sh", "-c", "echo second; exit 3")["id"]
    third = start(cli, "--after", first, "--after", second, "--", "echo", "third")
    assert [cli.json("show", run)["state"] for run in (first, second, third["id"])] == [
        "running",
        "pending",
        "pending",
    ]
    assert cli.json("show", third["id"])["cause"] == f"it waits for run {first}, {second}"
    (cli.cwd / "open").write_text("0")
    assert wait(cli, first)["state"] == "completed"
    assert wait(cli, second)["state"] == "failed"
    found = wait(cli, third["id"])
    assert found["state"] == "cancelled"
    assert f"run {second}, which comes before it, ended as failed" in found["cause"]
    assert not list(Path(third["dir"]).glob("attempts/*/rank-*.log")), "no rank has begun"
    refused = cli("run", "--after", second, "--", "true", check=3).stderr
    assert "that run has failed, so this one would never begin" in refused
    assert len(list(cli.runs.glob("2*"))) == 3
    assert cli("run", "--after", first, "--", "true").returncode == 0


def test_a_run_that_waits_can_be_cancelled_and_resumed(cli: Any) -> None:
    first = start(cli, "--", *GATE)["id"]
    with cli.start("run", "--after", first, "--", "echo", "hello") as process:
        line = process.stderr.readline() + process.stderr.readline()
        assert f"waiting for run {first}" in line
        deadline = time.monotonic() + 60
        while [row["state"] for row in cli.json("list")] != ["pending", "running"]:
            assert time.monotonic() < deadline
        second = cli.json("list")[0]["id"]
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert process.returncode == 130
    assert cli.json("show", second)["state"] == "cancelled"
    assert "hello" in cli("resume", second).stdout, "a resumed run waits for nobody"
    (cli.cwd / "open").write_text("0")
    wait(cli, first)


def test_only_runs_of_the_same_queue_are_waited_for(cli: Any) -> None:
    refused = cli("run", "--after", "nosuchrun", "--", "true", check=102).stderr
    assert "no run 'nosuchrun'" in refused
