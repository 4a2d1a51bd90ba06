"""`rampup new`: what it writes runs at once, passes its own test, and nothing of the user's is
overwritten."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rampup.config.resolve import Request, resolve


def test_runs_at_once_and_learns(cli: Any) -> None:
    assert "next: cd 'my project' && rampup run" in cli("new", "my project").stderr
    cli.cwd /= "my project"
    first = cli.json("run", "epochs=6", "--tasks-per-node", "2")
    assert first["state"] == "completed" and first["name"] == "my-project"
    assert first["metrics"]["val_accuracy"] > 0.85
    assert first["metrics"]["epoch"] == 6
    assert [row["step"] for row in cli.json("show", "--checkpoints")] == [132, 110]


@pytest.mark.parametrize(("engine", "needs"), [("lightning", "lightning"), ("keras", "tf_keras")])
def test_a_project_of_another_engine_runs_at_once_and_passes_its_test(
    cli: Any, engine: str, needs: str
) -> None:
    if importlib.util.find_spec(needs) is None:
        pytest.skip(f"needs {needs}")
    cli("new", "mine", "--engine", engine)
    cli.cwd /= "mine"
    spec = cli.json("run", "channels=8", "--dry-run")
    settings = {row["key"]: row["origin"] for row in spec["settings"]}
    assert settings["train.channels"] == "command line" and settings["train.lr"].endswith(
        "rampup.toml"
    )
    passes_its_test(cli)  # it trains on two ranks


def test_each_gpu_has_a_rank_in_a_lightning_project(cli: Any) -> None:
    cli("new", "mine", "--engine", "lightning")
    spec = resolve(Request(target="rampup.toml", options={"gpus_per_node": "2"}), cli.cwd / "mine")
    assert spec.resources.tasks_per_node == 2


def passes_its_test(cli: Any) -> None:
    env = {**cli.env, "PYTEST_ADDOPTS": ""}
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(argv, cwd=cli.cwd, env=env, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout + done.stderr


def test_what_a_lightning_project_shows(cli: Any) -> None:
    cli("new", "mine", "--engine", "lightning")
    cli.cwd /= "mine"
    run = cli.json("run", "max_epochs=2", "max_steps=30")
    assert run["name"] == "mine" and run["metrics"]["val_f1"] > 0.3
    kept = json.loads((Path(run["dir"]) / "attempts" / "1" / "evaluation.json").read_text())
    assert kept["classes"] == list("0123456789") and sum(map(sum, kept["confusion"])) == 360
    assert {"samples", "weights", "curves"} <= kept.keys()
    assert "no workers, all in memory" in cli("logs", "--rank", "0").stdout


def test_its_own_test_passes_and_the_script_runs_alone(cli: Any) -> None:
    cli("new", "mine")
    cli.cwd /= "mine"
    passes_its_test(cli)
    alone = subprocess.run(
        [sys.executable, "train.py"],
        cwd=cli.cwd,
        env=cli.env,
        capture_output=True,
        text=True,
        timeout=100,
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


def test_an_unknown_engine_is_refused_with_those_that_are_there(cli: Any) -> None:
    said = cli("new", "mine", "--engine", "lightnin", check=2).stderr
    assert "loop" in said and "lightning" in said and "keras" in said
    assert not (cli.cwd / "mine").exists()


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
