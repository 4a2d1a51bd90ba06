"""`rampup new`: what it writes runs at once, passes its own test, and nothing of the user's is overwritten."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest


def test_runs_at_once_and_learns(cli: Any) -> None:
    assert "next: cd 'my project' && rampup run" in cli("new", "my project").stderr
    cli.cwd /= "my project"
    first = cli.json("run", "epochs=6", "--tasks-per-node", "2")
    assert first["state"] == "completed" and first["name"] == "my-project"
    assert first["metrics"]["val_accuracy"] > 0.85
    assert first["metrics"]["epoch"] == 6
    assert [row["step"] for row in cli.json("show", "--checkpoints")] == [132, 110]


def test_its_own_test_passes_and_the_script_runs_alone(cli: Any) -> None:
    cli("new", "mine")
    env = {**cli.env, "PYTEST_ADDOPTS": ""}
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(argv, cwd=cli.cwd / "mine", env=env, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout + done.stderr
    alone = subprocess.run(
        [sys.executable, "train.py"], cwd=cli.cwd / "mine", env=cli.env, capture_output=True, text=True, timeout=100
    )
    assert alone.returncode == 0, alone.stderr


def test_an_interrupted_run_ends_with_the_same_numbers(cli: Any) -> None:
    cli("new", "mine")
    cli.cwd /= "mine"
    whole = cli.json("run", "epochs=4")
    cli.script(STOPPED_ONCE, "stopped.py")
    half = cli.run_command("python", "stopped.py", options=("epochs=4",), check=103)
    assert half["metrics"]["epoch"] == 1
    both = cli.json("resume", half["id"])
    assert both["attempts"] == 2 and both["state"] == "completed"
    for key in ("step", "epoch", "train_loss", "val_accuracy"):
        assert both["metrics"][key] == whole["metrics"][key]


@pytest.mark.parametrize("there", ["file", "full"])
def test_what_is_there_stays(cli: Any, there: str) -> None:
    place: Path = cli.cwd / "mine"
    if there == "file":
        place.write_text("precious")
    else:
        place.mkdir()
        (place / "train.py").write_text("precious")
    done = cli("new", "mine", check=3)
    assert "hint:" in done.stderr
    assert (place if there == "file" else place / "train.py").read_text() == "precious"


def test_dry_run_writes_nothing(cli: Any) -> None:
    assert "mine/train.py" in cli("new", "mine", "--dry-run").stdout
    assert not (cli.cwd / "mine").exists()


STOPPED_ONCE = '''
"""The project's own loop; in its first attempt a wish to stop comes at step 30."""

import os
import signal

import rampup
import train

log_loss = train.cross_entropy
calls = 0


def counting(*arguments):
    global calls
    calls += 1
    if calls == 30 and os.environ["RAMPUP_ATTEMPT"] == "1":
        os.kill(os.getpid(), signal.SIGUSR2)
    return log_loss(*arguments)


train.cross_entropy = counting
train.main()
'''
