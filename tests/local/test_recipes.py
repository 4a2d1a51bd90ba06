"""The recipes train something real and reach what they promise."""

import json

import pytest


def test_polyfit(cli) -> None:
    run = cli.json("run", "polyfit")
    assert abs(run["metrics"]["b"] - 0.857) < 0.07
    assert abs(run["metrics"]["d"] + 0.0933) < 0.01
    assert run["metrics"]["loss"] < 20


def test_digits_on_two_ranks(cli) -> None:
    run = cli.json("run", "digits", "--tasks-per-node", "2")
    assert run["best"]["metric"] == "val_accuracy"
    assert run["best"]["value"] >= 0.95
    assert {"train_loss", "val_loss", "val_accuracy", "lr", "samples_s", "epoch", "step", "t"} <= set(run["metrics"])


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_mnist(cli, mnist, seed: int) -> None:
    run = cli.json("run", "mnist", f"seed={seed}", "--cpus-per-task", "1")
    assert run["best"]["value"] >= 0.975
    phases = cli.json("show", run["id"])["phases"]
    assert phases["other"] < 0.05 * phases["wall"], phases
    assert set(phases) >= {"start", "data", "compute", "communication", "evaluation", "saving", "other", "wall"}


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
