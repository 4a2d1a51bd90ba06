"""Which metric decides what is best in a LightningModule: the names that modules give it, and a line
that says how to name another."""

from types import SimpleNamespace
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.plugins.environments import LightningEnvironment

from rampup.engines.lightning.rows import Rows
from rampup.runtime.job import Best


class Steady:
    """What a job and a world do for Rows, with nothing behind it."""

    rank, size, device = 0, 1, torch.device("cpu")
    phases = SimpleNamespace(seconds={"data": 0.0, "compute": 0.0})
    metrics = SimpleNamespace(write=lambda step, **values: None, flush=lambda: None)
    progress = SimpleNamespace(milestone=lambda step, shown: None)
    settings = SimpleNamespace(monitor="", monitor_mode="auto")

    @staticmethod
    def all_reduce(values: torch.Tensor) -> torch.Tensor:
        return values


def end_epochs(*epochs: dict[str, float], **settings: str) -> Best | None:
    """The best after these epochs; each logs what it has."""
    own: Any = Steady()
    own.settings = SimpleNamespace(**{**vars(own.settings), **settings})
    trainer = pl.Trainer(
        accelerator="cpu",
        plugins=[LightningEnvironment()],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
    )
    rows = Rows(own, own, trainer, every=10)
    for epoch, logged in enumerate(epochs, start=1):
        rows.epoch_ends()
        rows.log(logged)
        rows.epoch_ended(10 * epoch, epoch, whole=True)
    return rows.best


@pytest.mark.parametrize(
    ("name", "epoch"),
    [
        ("valid_loss", 1),
        ("val_loss", 1),
        ("val/loss", 1),
        ("valid/loss", 1),
        ("validation_loss", 1),
        ("val/acc", 2),
        ("valid_acc", 2),
        ("val_accuracy", 2),
    ],
)
def test_the_usual_names_of_a_validation_decide(
    name: str, epoch: int, capsys: pytest.CaptureFixture[str]
) -> None:
    found = end_epochs({name: 0.5, "train_loss": 0.9}, {name: 0.75, "train_loss": 0.1})
    assert found is not None
    assert (found.metric, found.epoch, found.value) == (name, epoch, 0.5 if epoch == 1 else 0.75)
    said = capsys.readouterr()
    assert "decides" not in said.out + said.err


def test_accuracy_decides_before_loss() -> None:
    found = end_epochs({"val/acc": 0.5, "val/loss": 0.1}, {"val/acc": 0.75, "val/loss": 0.9})
    assert found is not None and (found.metric, found.epoch) == ("val/acc", 2)


def test_another_name_does_not_decide_and_a_line_says_once_how_it_would(
    capsys: pytest.CaptureFixture[str],
) -> None:
    epochs = ({"train_loss": 0.9, "val_iou": 0.9}, {"train_loss": 0.1, "val_iou": 0.5})
    found = end_epochs(*epochs)
    assert found is not None and (found.metric, found.epoch) == ("train_loss", 2)
    line = "train_loss decides which epoch is best; to judge by a validation: monitor=val_iou"
    said = capsys.readouterr()
    assert (said.out + said.err).count(line) == 1
    named = end_epochs(*epochs, monitor="val_iou", monitor_mode="max")
    assert named is not None and (named.metric, named.epoch) == ("val_iou", 1)
    said = capsys.readouterr()
    assert "decides" not in said.out + said.err
