"""`net=pkg.mod:Net net.width=64`: arguments of a LightningModule that are objects."""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from rampup.rundir.files import RunDir

PROGRAM = Path(__file__).parents[1] / "foreign" / "object_arguments.py"
TARGET = "object_arguments:Lit"
NET = "net=object_arguments:Net"
ADAM = "optimizer=torch.optim:Adam"


@pytest.fixture
def project(cli: Any) -> None:
    shutil.copy(PROGRAM, cli.cwd / PROGRAM.name)


def test_objects_are_built_and_the_run_resumes(cli: Any, project: None) -> None:
    """A network with a block inside, and an optimizer that only the module can complete; text with
    a colon stays text. `val/acc` decides what is best. It takes up to 30 s: Lightning starts twice."""
    words = (NET, "net.width=24", "net.block=torch.nn:Tanh", "net.title=a:b", ADAM)
    words = (*words, "optimizer.lr=0.01", "max_epochs=2", "checkpoint.every=5steps")
    made = cli.json("run", TARGET, *words)
    run = RunDir(made["dir"])
    assert "net: 24 Tanh a:b" in run.attempt(1).rank_log(0).read_text()
    assert made["best"]["metric"] == "val/acc"
    assert {row["lr"] for row in run.history() if "lr" in row} == {0.01}


@pytest.mark.parametrize(
    ("words", "cause", "hint"),
    [
        ((), "Lit needs", "pkg.mod:Class for an object"),
        ((NET, "net.widht=3", ADAM), "object_arguments:Net has no argument 'widht'", "width"),
        (("net=object_arguments:Nett", ADAM), "has no class or function 'Nett'", "Net"),
        (("net=nowhere:Net", ADAM), "net=nowhere:Net: no module 'nowhere'", "net=pkg.mod:Class"),
        ((NET, "net.width=x", ADAM), "train.net.width = 'x'", "a whole number"),
    ],
)
def test_a_wrong_object_is_refused_before_anything_starts(
    cli: Any, project: None, words: tuple[str, ...], cause: str, hint: str
) -> None:
    refused = cli("run", TARGET, *words, check=3).stderr
    assert cause in refused and hint in refused
    assert not list(cli.runs.glob("2*"))


def test_one_line_says_how_to_name_the_metric(cli: Any, project: None) -> None:
    """It takes up to 20 s: Lightning starts."""
    text = PROGRAM.read_text().replace('"val/acc"', '"val_odd_one"').replace("val/odd", "val_other")
    (cli.cwd / PROGRAM.name).write_text(text)
    log = cli("run", TARGET, NET, ADAM, "max_epochs=2").stdout
    said = re.findall(r"note: train_loss decides.*", log)
    assert len(said) == 1 and "monitor=val_o" in said[0]
