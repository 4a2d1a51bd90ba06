"""Any command gets a run, ranks and logs, and its arguments arrive as they were typed."""

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from rampup import rank
from rampup.export.tracker import read_source
from rampup.rundir import files as rundir
from rampup.rundir.files import RunDir
from rampup.rundir.records import write_json
from rampup.schedulers.local import supervisor_argv

HOSTILE = (
    "two words",
    'it\'s "quoted"',
    "$(touch pwned)",
    "`id`",
    "line\nbreak",
    "ünïcödé ✓",
    "-x",
    "--",
    "",
    "a=b",
    "*",
    "\\",
)


def test_arguments_arrive_unchanged(cli) -> None:
    script = cli.script("import json, sys; json.dump(sys.argv[1:], open('seen.json', 'w'))")
    run = cli.run_command("python", script, *HOSTILE)
    assert run["state"] == "completed"
    assert tuple(json.loads((cli.cwd / "seen.json").read_text())) == HOSTILE
    assert not (cli.cwd / "pwned").exists()


def test_arguments_that_are_not_unicode_arrive_unchanged(cli) -> None:
    script = cli.script("import os, sys; open('seen', 'wb').write(os.fsencode(sys.argv[1]))")
    cli.run_command("python", script, os.fsdecode(b"\xff\xfe"))
    assert (cli.cwd / "seen").read_bytes() == b"\xff\xfe"


def test_settings_arrive_unchanged(cli) -> None:
    script = cli.script(
        "import rampup; open('seen', 'w', newline='').write(rampup.init().config['text'])"
    )
    value = "\n".join(HOSTILE)
    cli.run_command("python", script, options=(f"text={value}",))
    assert (cli.cwd / "seen").read_text() == value


def test_ranks_have_the_context_of_torchrun(cli) -> None:
    script = cli.script(
        """
        import json, os
        names = "RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE MASTER_PORT TF_CONFIG OMP_NUM_THREADS".split()
        json.dump({name: os.environ[name] for name in names}, open(f"rank{os.environ['RANK']}.json", "w"))
        """
    )
    cli.run_command("python", script, options=("--tasks-per-node=3", "--cpus-per-task=2"))
    ranks = [json.loads((cli.cwd / f"rank{number}.json").read_text()) for number in range(3)]
    for number, seen in enumerate(ranks):
        assert (seen["RANK"], seen["LOCAL_RANK"]) == (str(number), str(number))
        assert (seen["WORLD_SIZE"], seen["LOCAL_WORLD_SIZE"], seen["OMP_NUM_THREADS"]) == (
            "3",
            "3",
            "2",
        )
        assert json.loads(seen["TF_CONFIG"])["task"] == {"type": "worker", "index": number}
        assert len(set(json.loads(seen["TF_CONFIG"])["cluster"]["worker"])) == 3
    assert len({seen["MASTER_PORT"] for seen in ranks}) == 1
    assert 12000 <= int(ranks[0]["MASTER_PORT"]) < 30000


def test_a_taken_port_is_avoided(cli) -> None:
    """The first port of the run is taken: the ranks meet at the next block."""
    run = RunDir(cli.runs / "20260101-000000-port-aaaaaa")
    argv = [sys.executable, "-c", "import os; print(os.environ['MASTER_PORT'])"]
    config = {"argv": argv, "resources": {"tasks_per_node": 2}}
    with rundir.create_run(run.path, {"id": run.id}) as made:
        write_json(made.config_file, config)
    shutil.copyfile(rank.__file__, run.rank_program)
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", rank.first_port(f"{run.path}/1", 0)))
        holder.listen()
        subprocess.run(supervisor_argv(run.path), check=True, timeout=30)
    assert run.attempt(1).rank_log(1).read_text() == f"{rank.first_port(f'{run.path}/1', 1)}\n"


def test_each_rank_has_a_log(cli) -> None:
    script = cli.script("import os; print('hello from', os.environ['RANK'])")
    run = cli.run_command("python", script, options=("--tasks-per-node=2",))
    for number in range(2):
        assert cli("logs", run["id"], "--rank", str(number)).stdout == f"hello from {number}\n"
    assert cli("logs", run["id"], "--rank", "2", check=102)


def test_output_passes_through_and_json_keeps_stdout_clean(cli) -> None:
    assert cli("run", "--", "echo", "hello").stdout == "hello\n"
    done = cli("run", "--json", "--", "echo", "hello")
    assert set(json.loads(done.stdout)) >= {
        "id",
        "dir",
        "state",
        "exit_code",
        "attempts",
        "metrics",
        "best",
    }
    assert "hello" in done.stderr


@pytest.mark.parametrize(
    ("code", "cause"),
    [
        ("import sys; sys.exit(3)", "exited with code 3"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "killed by SIGKILL"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "killed by SIGSEGV"),
        ("raise ValueError('broken on purpose')", "exited with code 1"),
        ("import sys; sys.exit(98)", "exited with code 98"),
        ("import sys; sys.exit(74)", "exited with code 74"),
    ],
)
def test_a_failing_script_fails_the_run(cli, code: str, cause: str) -> None:
    run = cli.run_command("python", cli.script(code), check=100)
    assert (run["state"], run["exit_code"]) == ("failed", 100)
    assert cause in run["cause"]
    assert run["attempts"] == 1


def test_every_attempt_runs_the_code_as_submitted(cli) -> None:
    """The script is run from the copy in the run directory, with the user's own working
    directory."""
    script = cli.script("import os, sys; print(os.getcwd()); print(os.path.abspath(sys.argv[0]))")
    run = cli.run_command("python", script)
    cwd, ran = cli("logs", run["id"]).stdout.splitlines()
    assert cwd == str(cli.cwd)
    assert Path(ran).is_relative_to(Path(run["dir"]) / "code")


def test_a_file_of_settings(cli) -> None:
    cli.script(
        "import rampup; run = rampup.init(); run.log(step=1, seen=run.config.lr)", "train.py"
    )
    (cli.cwd / "rampup.toml").write_text(
        'command = ["python", "train.py"]\nname = "mine"\n[train]\nlr = 0.5\n'
    )
    run = cli.json("run", "rampup.toml", "lr=0.25")
    assert (run["name"], run["metrics"]["seen"]) == ("mine", 0.25)
    assert (Path(run["dir"]) / "rampup.toml").read_text() == (cli.cwd / "rampup.toml").read_text()
    assert cli.json("run")["metrics"]["seen"] == 0.5
    assert "did you mean lr" in cli("run", "rampup.toml", "lrr=1", check=3).stderr
    assert cli.run_command("python", "train.py")["metrics"]["seen"] == 0.5, (
        "the file beside the script counts too"
    )


def test_the_settings_of_a_loop_are_shown_listed_and_exported(cli) -> None:
    cli.script("import rampup\nrun = rampup.init(lr=0.1, steps=5)\nrun.log({'loss': 0.5})", "t.py")
    (cli.cwd / "rampup.toml").write_text("[train]\nsteps = 9\n")
    run = cli.run_command("python", "t.py", options=("epochs=3",))
    shown = cli("show").stdout
    for name, value, origin in (
        ("lr", "0.1", "rampup.init"),
        ("steps", "9", "rampup.toml"),
        ("epochs", "3", "command line"),
    ):
        assert f"settings ({origin}): {name}={value}" in shown.splitlines()
    assert cli.json("show")["config"]["train"] == {"epochs": 3, "lr": 0.1, "steps": 9}
    (row,) = cli.json("list", "--columns", "lr,steps")
    assert row["columns"] == {"lr": 0.1, "steps": 9}
    assert read_source(RunDir(run["dir"])).settings == {"epochs": 3, "lr": 0.1, "steps": 9}


def test_rows_are_on_the_disk_within_seconds_and_after_a_cancel(cli, eventually) -> None:
    """A loop that logs quickly and is then silent."""
    text = "import rampup, time\nrun = rampup.init()\nfor step in range(50): run.log(step=step, loss=1.0)\ntime.sleep(60)"
    done = cli("run", "--detach", "--json", "--", "python", cli.script(text))
    run = json.loads(done.stdout)["id"]
    eventually(lambda: len(cli.json("show", run, "--history")) == 50, seconds=10, what="all rows")
    cli("cancel", run)
    assert len(cli.json("show", run, "--history")) == 50


def test_a_closed_pipe_does_not_end_the_run(cli) -> None:
    script = cli.script(
        "import time\nfor line in range(30):\n    print(line, flush=True); time.sleep(0.1)\nopen('done', 'w')"
    )
    shell = f"{sys.executable} -m rampup run -- python {script} | head -n 1"
    done = subprocess.run(
        ["bash", "-c", shell], cwd=cli.cwd, env=cli.env, capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "0\n"
    assert "the run continues" in done.stderr
    assert (cli.cwd / "done").exists() and cli.json("show")["state"] == "completed"


def test_all_ranks_have_the_same_start_time(cli) -> None:
    script = cli.script("import os; print(os.environ['RAMPUP_STARTED'])")
    made = cli.run_command("python", script, options=("--tasks-per-node=2",))
    logs = [RunDir(made["dir"]).attempt(1).rank_log(rank).read_text() for rank in (0, 1)]
    assert logs[0] == logs[1]
    assert float(logs[0]) > 1.7e9
