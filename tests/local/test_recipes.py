"""The recipes train something real and reach what they promise."""

import json
import subprocess
from pathlib import Path

import pytest

from rampup.rundir.files import RunDir
from rampup.schedulers.local import supervisor_argv


def test_polyfit(cli) -> None:
    run = cli.json("run", "polyfit")
    assert abs(run["metrics"]["b"] - 0.857) < 0.07
    assert abs(run["metrics"]["d"] + 0.0933) < 0.01
    assert run["metrics"]["loss"] < 20


def test_polyfit_goes_on_from_its_last_checkpoint(cli) -> None:
    whole = cli.json("run", "polyfit", "steps=1200")
    # what a requeued job does
    subprocess.run(supervisor_argv(Path(whole["dir"])), check=True, timeout=60)
    again = cli.json("show", whole["id"])
    assert RunDir(whole["dir"]).attempt(2).resume_step() == 1000
    assert {**again["metrics"], "t": 0} == {**whole["metrics"], "t": 0}, (
        "the same numbers to the last bit"
    )


def test_digits_on_two_ranks(cli) -> None:
    run = cli.json("run", "digits", "--tasks-per-node", "2")
    assert run["best"]["metric"] == "val_accuracy"
    assert run["best"]["value"] >= 0.95
    assert {
        "train_loss",
        "val_loss",
        "val_accuracy",
        "lr",
        "samples_s",
        "epoch",
        "step",
        "t",
    } <= set(run["metrics"])


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_mnist(cli, mnist, seed: int) -> None:
    run = cli.json("run", "mnist", f"seed={seed}", "--cpus-per-task", "1")
    assert run["best"]["value"] >= 0.975
    phases = cli.json("show", run["id"])["phases"]
    assert phases["other"] < 0.05 * phases["wall"], phases
    assert set(phases) >= {
        "start",
        "data",
        "compute",
        "communication",
        "evaluation",
        "saving",
        "other",
        "wall",
    }


def test_one_batch_of_everything_keeps_no_checkpoint(cli) -> None:
    """And the batch is larger than the data, which is noted."""
    done = cli("run", "digits", "--dev", "batch_size=1000000", "--json")
    run = json.loads(done.stdout)
    assert "note: batch_size=1,000,000 is larger than the data (1,437 samples)" in done.stderr
    assert run["metrics"]["step"] == 1 and not list(Path(run["dir"]).glob("checkpoints/*"))
    assert [row["name"] for row in cli.json("list")] == ["digits-dev"]


def test_stop_on_a_target(cli) -> None:
    run = cli.json("run", "digits", "target=0.5")
    assert run["metrics"]["epoch"] < 5 and run["best"]["value"] >= 0.5


def test_the_summary_tells_what_happened(cli) -> None:
    done = cli("run", "digits", "epochs=2")
    assert "best: val_accuracy" in done.stderr
    assert "time: start" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("next: rampup show")
    lines = [line for line in done.stdout.splitlines() if line.startswith("epoch=")]
    assert len(lines) == 2 and "val_accuracy=" in lines[0]
    assert "\r" not in done.stdout + done.stderr, "a bar belongs on a terminal"


def test_a_recipe_that_raises_fails_with_its_traceback(cli) -> None:
    folder = cli.cwd / "broken"
    folder.mkdir()
    (folder / "recipe.toml").write_text('engine = "torch"\nentry = "train:Broken"\n')
    (folder / "train.py").write_text(
        "class Broken:\n    def __init__(self, settings):\n        raise ValueError('as planned')\n"
    )
    done = cli("run", "./broken", "--json", check=100)
    run = json.loads(done.stdout)
    assert "ValueError: as planned" in run["cause"]
    assert "Traceback" in done.stderr


def test_a_second_attempt_goes_on_in_the_middle_of_an_epoch(cli) -> None:
    import torch

    words = ("digits", "epochs=4", "log_every=1", "--tasks-per-node", "2", "--cpus-per-task", "1")
    whole = cli.json("run", *words, "max_steps=100")
    parts = cli.json("run", *words, "max_steps=50")
    config = Path(parts["dir"]) / "config.json"
    config.write_text(config.read_text().replace('"max_steps": 50', '"max_steps": 100'))
    # what a requeued job does
    subprocess.run(supervisor_argv(Path(parts["dir"])), check=True, timeout=60)
    assert cli.json("show", parts["id"])["attempts"] == 2
    states = [
        torch.load(Path(run["dir"]) / "checkpoints/step-100/state.pt", weights_only=True)
        for run in (whole, parts)
    ]
    for name, weights in states[0]["model"].items():
        assert torch.equal(weights, states[1]["model"][name]), name
    rows = [cli.json("show", run["id"], "--history") for run in (whole, parts)]
    losses = [
        [(row["step"], row["train_loss"]) for row in side if "samples_s" not in row]
        for side in rows
    ]
    assert [step for step, _ in losses[0]] == list(range(1, 101))
    assert losses[0] == losses[1]
