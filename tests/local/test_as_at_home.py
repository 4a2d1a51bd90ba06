"""Other people's programs as at home: what a command sees that nobody asked to be a rank, and what
it sees when somebody did."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

OF_TORCHRUN = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TF_CONFIG")
SHOW = f"""
import json, os
print(json.dumps([name for name in {OF_TORCHRUN} if name in os.environ]))
"""
RANK_CHECK = Path(__file__).parents[1] / "foreign" / "rank_check.py"


def log_of(cli: Any, run: str, rank: int = 0) -> str:
    return cli("logs", run, "--rank", str(rank)).stdout


def test_a_program_that_takes_rank_for_torchrun_runs_alone_and_on_two_ranks(cli: Any) -> None:
    run = cli.run_command("python", str(RANK_CHECK))
    assert log_of(cli, run["id"]) == "alone None\n"
    run = cli.run_command("python", str(RANK_CHECK), options=("--tasks-per-node", "2"))
    assert [log_of(cli, run["id"], rank) for rank in (0, 1)] == ["together 2\n"] * 2


@pytest.mark.parametrize(
    ("options", "seen"),
    [
        ((), []),
        (("--cpus-per-task", "1", "--time", "0:10:00"), []),
        (("--tasks-per-node", "1"), [*OF_TORCHRUN]),
        (("--nodes", "1"), [*OF_TORCHRUN]),
        (("--on", "local"), [*OF_TORCHRUN]),
        (("--launcher", "spawn"), [*OF_TORCHRUN]),
        (("--tasks-per-node", "2"), [*OF_TORCHRUN]),
    ],
)
def test_the_variables_of_torchrun_are_set_where_ranks_were_asked_for(
    cli: Any, options: tuple[str, ...], seen: list[str]
) -> None:
    run = cli.run_command("python", cli.script(SHOW), options=options)
    assert json.loads(log_of(cli, run["id"])) == seen


def test_a_resumed_command_stays_as_at_home_until_ranks_are_asked_for(cli: Any) -> None:
    script = cli.script(f"{SHOW}\nraise SystemExit(os.environ['RAMPUP_ATTEMPT'] != '4')")
    run = cli.run_command("python", script, check=100)["id"]
    cli("resume", run, check=100)
    cli("resume", run, "--tasks-per-node", "1", check=100)
    cli("resume", run)
    logs = sorted(cli.runs.glob("2*/attempts/*/rank-0.log"))
    seen = [len(json.loads(path.read_text())) for path in logs]
    assert seen == [0, 0, len(OF_TORCHRUN), len(OF_TORCHRUN)]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("import os\nos.environ['TF_CONFIG']", "TF_CONFIG"),
        ("import os\nint(os.environ['LOCAL_RANK'])", "LOCAL_RANK"),
        (
            "import torch.distributed as dist\ndist.init_process_group('gloo')",
            "RANK",
        ),
    ],
)
def test_why_explains_a_variable_that_only_ranks_have(cli: Any, text: str, name: str) -> None:
    run = cli.run_command("python", cli.script(text), check=100)
    found = cli.json("why", run["id"])
    assert found["problem"] == "ranks-not-asked-for"
    assert f"needs the variable {name}, at script.py:2" in found["cause"]
    assert found["remedy"].startswith("rampup run --tasks-per-node 1 -- python ")


# signals ------------------------------------------------------------------------------------------


def test_signals_that_python_ignores_are_as_in_a_shell(cli: Any) -> None:
    """`yes | head -1` ends by SIGPIPE, and not with an error."""
    run = cli.run_command("bash", "-c", 'yes | head -1; echo "${PIPESTATUS[@]}"')
    assert log_of(cli, run["id"]) == "y\n141 0\n"
    run = cli.run_command("sh", "-c", "grep SigIgn /proc/self/status")
    ignored = int(log_of(cli, run["id"]).split()[1], 16)
    assert ignored & (1 << 12 | 1 << 24) == 0


@pytest.mark.parametrize("form", ["-c", "script", "own"])
def test_a_shell_can_trap_usr2(cli: Any, form: str) -> None:
    text = "trap 'echo heard; exit 3' USR2\nkill -USR2 $$\nsleep 20\n"
    cli.script(f"#!/usr/bin/env bash\n{text}", "wrap.sh")
    (cli.cwd / "wrap.sh").chmod(0o755)
    words = {"-c": ("sh", "-c", text), "script": ("bash", "wrap.sh"), "own": ("./wrap.sh",)}[form]
    run = cli.run_command(*words, check=100)
    assert log_of(cli, run["id"]) == "heard\n"


def test_a_program_that_names_no_usr2_is_not_ended_by_it(cli: Any) -> None:
    cli.script("import os, signal\nos.kill(os.getpid(), signal.SIGUSR2)\nprint('lives')", "x.py")
    run = cli.run_command("bash", "-c", "python x.py && kill -s $((12)) $$; echo both")
    assert log_of(cli, run["id"]) == "lives\nboth\n"


# standard input -----------------------------------------------------------------------------------


def rampup(cli: Any, *words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "rampup", *words],
        cwd=cli.cwd,
        env={**os.environ, **cli.env},
        capture_output=True,
        text=True,
        timeout=60,
        **options,
    )


@pytest.mark.parametrize("by", ["pipe", "file"])
def test_standard_input_arrives_on_rank_0(cli: Any, by: str) -> None:
    cli.script("import os, sys; print(os.environ['RANK'], sys.stdin.read())", "read.py")
    words = ("run", "--tasks-per-node", "2", "--", "python", "read.py")
    if by == "pipe":
        done = rampup(cli, *words, input="some words")
    else:
        (cli.cwd / "words").write_text("some words")
        with open(cli.cwd / "words") as file:
            done = rampup(cli, *words, stdin=file)
    assert done.returncode == 0, done.stderr
    (run,) = cli.runs.glob("2*")
    logs = [(run / "attempts/1" / f"rank-{rank}.log").read_text() for rank in (0, 1)]
    assert logs == ["0 some words\n", "1 \n"]


def test_standard_input_that_nobody_would_read_is_refused(cli: Any) -> None:
    words = ("run", "--detach", "--", "cat")
    done = rampup(cli, *words, input="some words")
    assert done.returncode == 2
    assert "standard input can't reach a program with --detach" in done.stderr
    assert "hint: name the file in the command" in done.stderr
    assert not cli.runs.exists() or not list(cli.runs.iterdir())
    assert rampup(cli, *words, stdin=subprocess.DEVNULL).returncode == 0
    (cli.cwd / "list").write_text("a\nb\n")
    loop = f"while read -r each; do {sys.executable} -m rampup run --detach -- true; done < list"
    done = subprocess.run(
        ["bash", "-c", loop], cwd=cli.cwd, env={**os.environ, **cli.env}, capture_output=True
    )
    assert done.returncode == 0, "the rest of a file belongs to the loop of a shell"
    assert len(list(cli.runs.glob("2*"))) == 3


# settings and names -------------------------------------------------------------------------------


def test_a_setting_is_filled_in_as_in_a_sweep(cli: Any) -> None:
    run = cli.run_command("echo", "--lr", "{lr}", "{other}", options=("lr=1e-3",))
    assert log_of(cli, run["id"]) == "--lr 1e-3 {other}\n"
    (cli.cwd / "rampup.toml").write_text(
        'command = ["echo", "{lr}", "{fast}", "{steps}"]\n[train]\nlr = 0.5\nfast = true\nsteps = 3\n'
    )
    cli("run", "steps=4")
    assert log_of(cli, cli.json("list")[0]["id"]) == "0.5 true 4\n"


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (("python", "-m", "pkg.train", "config.py"), "pkg.train"),
        (("python", "-u", "-m", "torch.distributed.run", "train.py"), "train"),
        (("bash", "-c", "cd inner && python fit.py --lr 1"), "fit"),
        (("bash", "-c", "cd inner; python -m pkg.sub"), "pkg.sub"),
        (("sh", "-c", "exit 0"), "sh"),
        (("python", "-c", "pass"), "python"),
        (("./job.sh", "x.py"), "job"),
    ],
)
def test_a_run_has_the_name_of_what_it_runs(words: tuple[str, ...], name: str) -> None:
    from rampup.config.resolve import Request, resolve

    assert resolve(Request(command=words), Path.cwd()).name == name


# the copy of the code -----------------------------------------------------------------------------


def test_a_script_finds_the_users_own_data_above_it_and_why_names_its_line(cli: Any) -> None:
    """Outside of git: the path must not lead into the directory of runs."""
    for folder in ("data", "examples/basics"):
        (cli.cwd / folder).mkdir(parents=True)
    (cli.cwd / "data" / "a.csv").write_text("42")
    cli.script(
        "import os\nhere = os.path.dirname(__file__)\n"
        "print(open(os.path.join(here, '..', '..', 'data', 'a.csv')).read(), flush=True)\n"
        "os.makedirs(os.path.join(here, '..', '..', 'made'), exist_ok=True)\n1 / 0\n",
        "examples/basics/fit.py",
    )
    run = cli.run_command("python", "examples/basics/fit.py", check=100)
    assert log_of(cli, run["id"]).startswith("42\n")
    assert not (cli.runs / "made").exists(), "nothing lies among the runs"
    assert "at fit.py:5" in cli("why", run["id"]).stdout


# which Python -------------------------------------------------------------------------------------


def test_an_active_environment_that_is_not_used_is_named(cli: Any, tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "python").symlink_to(sys.executable)
    note = f"not the Python of {venv}, which is active here"
    said = cli("run", "--", "python", "-c", "pass", VIRTUAL_ENV=str(venv)).stderr
    assert note in said and f"--env {venv}" in said
    path = f"{venv}/bin:{os.environ['PATH']}"
    for words in (("python", "-c", "pass"), ("true",)):
        assert note not in cli("run", "--", *words, VIRTUAL_ENV=str(venv), PATH=path).stderr
    assert note in cli("run", "digits", "--dry-run", VIRTUAL_ENV=str(venv)).stderr
