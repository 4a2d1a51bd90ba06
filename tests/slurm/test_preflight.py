"""Before a submission, on a real Slurm: what can't work is refused with a remedy; afterwards: what
was used."""

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .conftest import Sandbox

Run = Callable[..., Any]


@pytest.fixture
def on(cli: Any, sandbox: Sandbox) -> Run:
    """`rampup run --on SANDBOX OPTIONS -- true`, with the exit code that is expected."""
    cli.env["XDG_CONFIG_HOME"] = sandbox.env["XDG_CONFIG_HOME"]

    def run(*options: str, check: int = 3, command: tuple[str, ...] = ("true",), **env: str) -> Any:
        return cli("run", "--on", sandbox.name, *options, "--", *command, check=check, **env)

    return run


@pytest.mark.parametrize(("options", "error", "hint"), [
    (["--partition", "normla"], "there is no partition 'normla'", "did you mean normal?"),
    (["--partition", "debug", "--time", "1:00:00"], "partition debug grants at most 0-00:30:00", "--time 0-00:30:00"),
    (["--nodes", "5", "cluster.max_nodes=none"], "nodes is 5, partition normal has 4", "--nodes 4"),
    (["--gpus-per-node", "5"], "a node of partition normal has at most 4 GPUs", "--gpus-per-node 4"),
    (["--gpus-per-node", "1", "cluster.gpu_type=h100"], "no node has GPUs of type 'h100'", "known: pretend"),
    (["--cpus-per-task", "9"], "tasks_per_node 1 x cpus_per_task 9 is 9", "--cpus-per-task 8"),
    (["--mem", "9000G"], "mem is 9000G", "--mem "),
    (["--account", "rampop"], "account 'rampop' is not one of yours", "did you mean rampup?"),
    (["--qos", "nromal"], "qos 'nromal' is not one of yours", "did you mean normal?"),
    (["cluster.shared=[]"], "which other machines do not see", "RAMPUP_RUNS"),
])  # fmt: skip
def test_a_request_that_can_not_work_is_refused(
    on: Run, cli: Any, options: list[str], error: str, hint: str
) -> None:
    said = on(*options).stderr
    assert error in said and hint in said.partition("hint:")[2]
    assert not cli.runs.exists(), "nothing was written"


def test_what_slurm_refuses_is_its_own_exit_code(on: Run, cli: Any, sandbox: Sandbox) -> None:
    before = sandbox.run("squeue", "--noheader", "--states=all", "-o", "%i")
    for options, words in (
        (["--constraint", "nosuch"], "Slurm would refuse the job: Invalid feature specification"),
        (
            ["--reservation", "nosuch"],
            "Slurm would refuse the job: Requested reservation is invalid",
        ),
    ):
        assert words in on(*options, check=4).stderr
    assert not cli.runs.exists()
    assert sandbox.run("squeue", "--noheader", "--states=all", "-o", "%i") == before


def test_more_ranks_than_gpus_is_refused_for_a_recipe_and_noted_for_a_command(
    on: Run, cli: Any, sandbox: Sandbox
) -> None:
    refused = cli(
        "run",
        "digits",
        "--on",
        sandbox.name,
        "--tasks-per-node",
        "2",
        "--gpus-per-node",
        "1",
        check=3,
    )
    assert "ranks share a GPU" in refused.stderr
    started = on("--gpus-per-node", "2", check=0)
    assert "note: tasks_per_node is 1, gpus_per_node is 2: GPUs stay idle" in started.stderr
    cli("wait", started.stdout.strip())


def test_nodes_out_of_service_do_not_hinder_a_submission(
    on: Run, cli: Any, sandbox: Sandbox
) -> None:
    """`sbatch --test-only` fails then, and sbatch does not: the job waits."""
    nodes = "nodename=node[1-4]"
    sandbox.run("scontrol", "update", nodes, "state=drain", "reason=test")
    try:
        started = on(check=0)
        assert "note: the job will wait: 4 of the nodes are out of service" in started.stderr
        run = started.stdout.strip()
        assert "node" in cli.json("show", run)["cause"]
    finally:
        sandbox.run("scontrol", "update", nodes, "state=resume")
    assert cli.json("wait", run)["state"] == "completed"


def test_a_silent_controller_is_exit_4_within_seconds(on: Run, cli: Any, sandbox: Sandbox) -> None:
    controller = sandbox.layout.record()["daemons"]["slurmctld"]["pid"]
    os.kill(controller, signal.SIGSTOP)
    try:
        begun = time.monotonic()
        said = on(check=4).stderr
        assert time.monotonic() - begun < 20
        assert "scontrol gave no answer" in said or "is not reachable" in said
    finally:
        os.kill(controller, signal.SIGCONT)
    assert not cli.runs.exists()


def test_preflight_is_quick(sandbox: Sandbox) -> None:
    code = (
        "import time; from pathlib import Path\n"
        "from rampup.config.resolve import Request, resolve\n"
        "from rampup.diagnose.preflight import preflight\n"
        "from rampup.runs.plan import make_plan\n"
        f"spec = resolve(Request(command=('true',), on={sandbox.name!r}), Path.cwd())\n"
        "begun = time.monotonic(); preflight(make_plan(spec, Path.cwd() / 'runs' / 'x'))\n"
        "print(time.monotonic() - begun)"
    )
    assert min(float(sandbox.run(sys.executable, "-c", code)) for _ in range(3)) < 0.5


def test_doctor_tells_what_the_cluster_has(cli: Any, sandbox: Sandbox) -> None:
    cli.env["XDG_CONFIG_HOME"] = sandbox.env["XDG_CONFIG_HOME"]
    found = {row["id"]: row for row in cli.json("doctor", "--on", sandbox.name)}
    assert {row["level"] for name, row in found.items() if not name.startswith("data-")} == {"ok"}
    assert "4 nodes, at most 1-00:00:00; 8 CPUs" in found["nodes"]["about"]
    assert "back in the queue" in found["preemption"]["about"]
    assert found["accounts"]["about"].startswith("your accounts: rampup")
    assert "it would start at" in found["sbatch"]["about"]
    assert "bf16" not in found
    done = cli("doctor", "--on", sandbox.name)
    assert done.stderr == f"next: rampup run digits --on {sandbox.name}\n"


# what was used ------------------------------------------------------------------------------------

BUSY = """
import time, rampup
run = rampup.init()
block = bytearray(200 * 2**20)
end = time.process_time() + 0.5
while time.process_time() < end:
    pass
time.sleep(2.5)
"""


def used(cli: Any, run: str) -> Any:
    shown = cli.json("show", run)
    assert shown["state"] == "completed"
    return shown["usage"]


def test_usage_from_sacct_and_from_our_own_samples(
    on: Run, cli: Any, tmp_path: Path, eventually: Any
) -> None:
    options = ("--nodes", "2", "--tasks-per-node", "2", "--mem", "2G", "--time", "1:00:00")
    run = on(*options, check=0, command=(sys.executable, cli.script(BUSY))).stdout.strip()
    cli("wait", run)
    eventually(lambda: used(cli, run)["source"] == "sacct", what="accounts of the job")
    accounts = used(cli, run)
    assert (accounts["time_limit_s"], accounts["mem_asked_mb"], accounts["cpus_per_rank"]) == (
        3600,
        2048,
        1,
    )
    assert 400 < accounts["mem_used_mb"] < 800 and 0.01 < accounts["cpus_busy"] < 1
    assert accounts["better"]["time"] == "0:01:00"
    assert (
        "used: " in cli("show", run).stdout and "asked 1 h 00 min, took" in cli("show", run).stdout
    )
    absent = tmp_path / "bin"
    absent.mkdir()
    (absent / "sacct").write_text(
        "#!/bin/sh\necho 'Slurm accounting storage is disabled' >&2\nexit 1\n"
    )
    (absent / "sacct").chmod(0o755)
    cli.env["PATH"] = f"{absent}:{cli.env['PATH']}"
    samples = used(cli, run)
    assert samples["source"] == "samples"
    assert (samples["time_limit_s"], samples["mem_asked_mb"], samples["cpus_per_rank"]) == (
        3600,
        2048,
        1,
    )
    assert 400 < samples["mem_used_mb"] < 800 and 0.01 < samples["cpus_busy"] < 1
    folder = Path(cli.json("show", run)["dir"]) / "attempts" / "1"
    assert sorted(path.name for path in folder.glob("system-*")) == [
        "system-node1.jsonl",
        "system-node2.jsonl",
    ]


def test_a_pending_run_shows_why_and_when(
    on: Run, cli: Any, sandbox: Sandbox, eventually: Any
) -> None:
    blocking = sandbox.sbatch(
        "sleep 60", "--nodes=4", "--exclusive", "--time=10", "--account=rampup"
    )
    run = on("--nodes", "4", "--time", "5", check=0).stdout.strip()
    try:
        eventually(
            lambda: "it may start in" in cli.json("show", run)["cause"],
            what="an estimate",
            seconds=20,
        )
        lines = cli("show", run).stdout.splitlines()
        assert any(
            line.startswith("the nodes that it needs are busy") and "it may start in 10 min" in line
            for line in lines
        ), lines
        assert json.loads(cli("show", run, "--json").stdout)["usage"] is None
    finally:
        sandbox.run("scancel", blocking)
        cli("cancel", run)
