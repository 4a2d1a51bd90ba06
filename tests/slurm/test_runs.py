"""Runs on a real Slurm: the same verbs, the same meaning, the same numbers as on one machine."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from rampup.drill.comparison import read_rows
from rampup.rundir.files import RunDir

TORCHRUN_SCRIPT = """
import os, sys
import torch, torch.distributed as dist

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
local, node = os.environ["LOCAL_RANK"], os.environ["SLURMD_NODENAME"]
total = torch.tensor([float(rank)])
dist.all_reduce(total)
print(f"rank {rank} of {size}, local {local}, on {node}, sum {total.item():.0f}, argv {sys.argv[1:]}")
dist.destroy_process_group()
"""


def submit(cli, sandbox, *words: str, command: tuple[str, ...] = ()) -> str:
    """`rampup run --on SANDBOX`; returns the id of the run."""
    tail = ("--", *command) if command else ()
    return cli("run", *words, "--on", sandbox.name, *tail).stdout.strip()


def python(cli, text: str) -> tuple[str, ...]:
    return (sys.executable, cli.script(text))


def counted_programs(cli, tmp_path: Path, *names: str) -> Path:
    """Programs that note each call and then call the real ones."""
    folder, calls = tmp_path / "bin", tmp_path / "calls"
    folder.mkdir()
    for name in names:
        (folder / name).write_text(
            f'#!/bin/sh\necho {name} >> {calls}\nexec /usr/bin/{name} "$@"\n'
        )
        (folder / name).chmod(0o755)
    cli.env["PATH"] = f"{folder}:{cli.env['PATH']}"
    return calls


def test_a_new_project_runs_there_at_once(cli, sandbox) -> None:
    cli("new", "mine")
    cli.cwd /= "mine"
    done = cli.json("wait", submit(cli, sandbox, "epochs=4", "--nodes", "2"))
    assert done["state"] == "completed" and done["metrics"]["val_accuracy"] > 0.8


def checkpoints(run: dict) -> list[Path]:
    return list(Path(run["dir"]).glob("checkpoints/step-*"))


def step_of(checkpoint: Path) -> int:
    return int(checkpoint.name.removeprefix("step-"))


def test_two_nodes_end_as_four_local_ranks_bit_for_bit(cli, sandbox, mnist: Path) -> None:
    import torch

    words = ("mnist", "epochs=1", "--cpus-per-task", "1")
    job = submit(cli, sandbox, *words, "--nodes", "2", "--tasks-per-node", "2")
    remote = cli.json("wait", job)
    local = cli.json("run", *words, "--tasks-per-node", "4")
    # a run that takes longer than ten seconds has older checkpoints, too
    files = [max(checkpoints(run), key=step_of) / "state.pt" for run in (local, remote)]
    assert step_of(files[0].parent) == step_of(files[1].parent)
    ours, theirs = (torch.load(file, weights_only=True)["model"] for file in files)
    for name, weights in ours.items():
        assert torch.equal(weights, theirs[name]), name
    assert read_rows(RunDir(local["dir"])) == read_rows(RunDir(remote["dir"]))


def test_a_script_written_for_torchrun_runs_untouched(cli, sandbox) -> None:
    argv = (*python(cli, TORCHRUN_SCRIPT), "two words", "$(x)")
    run = submit(
        cli,
        sandbox,
        "--nodes",
        "2",
        "--tasks-per-node",
        "2",
        "--slurm",
        "comment=hello",
        command=argv,
    )
    assert cli.json("wait", run)["state"] == "completed"
    for rank in range(4):
        said = cli("logs", run, "--rank", str(rank)).stdout
        assert f"rank {rank} of 4, local {rank % 2}, on node{rank // 2 + 1}, sum 6" in said
        assert "['two words', '$(x)']" in said


def test_a_failing_rank_fails_the_job_and_is_named(cli, sandbox) -> None:
    argv = python(
        cli, "import os, sys, time; sys.exit(3) if os.environ['RANK'] == '2' else time.sleep(60)"
    )
    begun = time.monotonic()
    run = submit(cli, sandbox, "--nodes", "2", "--tasks-per-node", "2", command=argv)
    told = cli.json("wait", run, check=100)
    assert time.monotonic() - begun < 50
    assert (told["state"], told["exit_code"]) == ("failed", 100)
    assert "rank 2 on node" in told["cause"] and "exit code 3" in told["cause"]


def test_a_rank_that_raises_shows_its_traceback(cli, sandbox) -> None:
    argv = python(
        cli,
        """
        import os, time, rampup
        if rampup.init().rank == 1:
            raise ValueError("as planned")
        time.sleep(60)
        """,
    )
    done = cli(
        "run", "--on", sandbox.name, "--tasks-per-node", "2", "--follow", "--", *argv, check=100
    )
    assert "rank 1: ValueError: as planned" in done.stderr
    assert "Traceback" in done.stderr


def test_cancel_logs_and_wait_tell_the_truth(cli, sandbox, eventually) -> None:
    argv = python(
        cli, "import os, time; print('begun', os.environ['RANK'], flush=True); time.sleep(120)"
    )
    run = submit(cli, sandbox, "--nodes", "2", "--tasks-per-node", "2", command=argv)
    eventually(lambda: cli.json("show", run)["state"] == "running", what="running")
    eventually(
        lambda: "begun 3" in cli("logs", run, "--rank", "3", check=None).stdout,
        what="its first line",
    )
    follower = cli.start("logs", run, "-f", "--rank", "3")
    cli("cancel", run)
    assert follower.communicate(timeout=45)[0] == "begun 3\n"
    assert cli.json("wait", run, check=103)["state"] == "cancelled"
    assert "already cancelled" in cli("cancel", run).stderr


def test_a_job_that_waits_says_why(cli, sandbox) -> None:
    run = submit(cli, sandbox, "--slurm", "hold", command=("true",))
    shown = cli.json("show", run)
    assert shown["state"] == "pending" and "held" in shown["cause"]
    assert "scontrol release" in cli("show", run).stdout
    cli("cancel", run)
    assert cli.json("wait", run, check=103)["state"] == "cancelled"


def test_a_lost_answer_of_sbatch_makes_one_job(cli, sandbox, tmp_path: Path) -> None:
    """A stand-in for sbatch that submits and then fails as a busy controller does."""
    folder = tmp_path / "bin"
    folder.mkdir()
    failure = "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation"
    (folder / "sbatch").write_text(
        f"""#!/bin/sh
case "$*" in *--test-only*) exec /usr/bin/sbatch "$@";; esac
/usr/bin/sbatch "$@" > /dev/null
echo '{failure}' >&2
exit 1
"""
    )
    (folder / "sbatch").chmod(0o755)
    cli.env["PATH"] = f"{folder}:{cli.env['PATH']}"
    run = submit(cli, sandbox, "--name", "once", command=("true",))
    listed = sandbox.run(
        "squeue", "--noheader", "--states=all", f"--name=once-{run}", "-o", "%i"
    ).split()
    assert len(listed) == 1
    assert cli.json("wait", run)["state"] == "completed"


def test_inside_an_allocation_the_run_uses_it(cli, sandbox) -> None:
    names = "('RANK', 'SLURMD_NODENAME', 'SLURM_JOB_ID')"
    argv = python(cli, f"import os; print(*(os.environ[name] for name in {names}))")
    words = ["--nodes", "2", "--tasks-per-node", "2", "--partition", "long", "--json"]
    rampup = [sys.executable, "-m", "rampup", "run", *words, "--", *argv]
    env = {**cli.env, "SLURM_CONF": sandbox.env["SLURM_CONF"]}
    salloc = ["salloc", "--nodes=2", "--ntasks-per-node=2", "--account=rampup", "--quiet"]
    done = subprocess.run(
        [*salloc, *rampup], cwd=cli.cwd, env=env, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert "--partition: no effect inside the allocation" in done.stderr
    run = json.loads(done.stdout)
    assert run["state"] == "completed"
    ranks = [cli("logs", run["id"], "--rank", str(rank)).stdout.split() for rank in range(4)]
    assert [rank[:2] for rank in ranks] == [
        ["0", "node1"],
        ["1", "node1"],
        ["2", "node2"],
        ["3", "node2"],
    ]
    assert len({rank[2] for rank in ranks}) == 1


def test_many_runs_cost_two_calls(cli, sandbox, tmp_path: Path) -> None:
    run = submit(cli, sandbox, command=("true",))
    cli("wait", run)
    calls = counted_programs(cli, tmp_path, "squeue", "sacct", "scontrol", "sinfo")
    for number in range(500):
        folder = cli.runs / f"20260101-000000-many-a{number:05d}"
        folder.mkdir()
        (folder / "run.json").write_text(
            json.dumps({"id": f"a{number:05d}", "name": "many", "created": 1.7e9})
        )
        job = {"scheduler": "slurm", "cluster": sandbox.name, "job": str(900_000 + number)}
        (folder / "control.jsonl").write_text(
            json.dumps({"t": 1.7e9, "what": "submitted", **job}) + "\n"
        )
    rows = cli.json("list", "--all")
    assert len(rows) == 501
    assert {row["state"] for row in rows} == {"completed", "failed"}
    assert 1 <= len(calls.read_text().split()) <= 2


def test_a_silent_controller_is_waited_for_five_seconds_at_most(cli, another, eventually) -> None:
    """In a sandbox of its own: a controller that slept takes minutes until it has all nodes
    again."""
    another.up("--nodes", "1", "--no-accounting")
    cli.env["XDG_CONFIG_HOME"] = another.env["XDG_CONFIG_HOME"]
    run = submit(
        cli, another, command=python(cli, "import time; print('begun', flush=True); time.sleep(30)")
    )
    log = next(cli.runs.glob("2*")) / "attempts" / "1" / "rank-0.log"
    eventually(lambda: log.exists() and log.read_text() == "begun\n", what="its first line")
    assert cli.json("show", run)["state"] == "running"
    controller = another.layout.record()["daemons"]["slurmctld"]["pid"]
    os.kill(controller, signal.SIGSTOP)
    try:
        time.sleep(2.1)  # the last answer is no longer fresh
        for words in (("list",), ("show", run), ("logs", run)):
            begun = time.monotonic()
            done = cli(*words)
            assert time.monotonic() - begun < 10, words
            if words[0] != "logs":
                assert "running" in done.stdout and "ago" in done.stdout
        assert cli("cancel", run, check=4)
    finally:
        os.kill(controller, signal.SIGCONT)
    assert cli.json("wait", run)["state"] == "completed"


def test_gpus_are_granted_and_seen(cli, sandbox) -> None:
    argv = python(cli, "import os; print(os.environ['CUDA_VISIBLE_DEVICES'])")
    run = submit(cli, sandbox, "--tasks-per-node", "2", "--gpus-per-node", "2", command=argv)
    cli("wait", run)
    assert cli("logs", run, "--rank", "1").stdout.strip() == "0,1"


def test_following_stops_with_ctrl_c_and_the_job_goes_on(cli, sandbox) -> None:
    go = cli.cwd / "go"
    argv = (
        "bash",
        "-c",
        f"echo begun; for i in {{1..600}}; do [ -e {go} ] && break; sleep 0.1; done",
    )
    following = cli.start("run", "--on", sandbox.name, "--follow", "--", *argv)
    assert following.stdout is not None and following.stdout.readline() == "begun\n"
    following.send_signal(signal.SIGINT)
    _, err = following.communicate(timeout=45)
    assert following.returncode == 130 and "is still running" in err
    go.touch()
    assert cli.json("wait")["state"] == "completed"


def test_the_script_works_by_hand(cli, sandbox) -> None:
    run = cli.json("show", submit(cli, sandbox, command=("true",)))
    cli("wait", run["id"])
    sandbox.run("sbatch", "--wait", f"{run['dir']}/job.sh")
    assert (Path(run["dir"]) / "attempts" / "2" / "attempt.json").exists()
    assert cli.json("show", run["id"])["attempts"] == 2


def test_a_trial_takes_one_step_one_checkpoint_and_one_resume(cli, sandbox) -> None:
    done = cli("run", "digits", "--on", sandbox.name, "--tasks-per-node", "2", "--smoke")
    assert "one step, one checkpoint, one resume" in done.stderr
    shown = cli.json("show")
    assert (shown["state"], shown["attempts"], shown["metrics"]["step"]) == ("completed", 2, 2)
    assert shown["config"]["resources"]["partition"] == "debug"
    assert cli("run", "digits", "--smoke", check=3)


def test_dry_run_shows_the_exact_script(cli, sandbox) -> None:
    words = ("digits", "--on", sandbox.name, "--nodes", "2", "--time", "30")
    plan = cli.json("run", *words, "--dry-run")
    assert plan["node_hours"] == 1
    assert not cli.runs.exists(), "nothing was made"
    script = (
        Path(cli.json("show", submit(cli, sandbox, *words[:1], *words[3:]))["dir"]) / "job.sh"
    ).read_text()
    names = [line.partition("=")[0] for line in script.splitlines() if line.startswith("#SBATCH")]
    assert [
        line.partition("=")[0] for line in plan["script"].splitlines() if line.startswith("#SBATCH")
    ] == names
    assert plan["script"].partition("first=")[2] == script.partition("first=")[2]
    cli("cancel", next(cli.runs.glob("2*")).name)
