"""What a recipe of the torch engine provides: data, a model, the loss of a batch, the sums of an evaluation.

A recipe subclasses Task in its train.py; the engine does all the rest. Everything here is plain PyTorch and knows
nothing of ranks: the engine cuts the batches and adds up.
"""

from collections.abc import Mapping
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from rampup.engines.torch_light import light
from rampup.runtime.settings import Settings

RULES = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}
"""By the setting `optimizer`."""


class Data(Protocol):
    """Samples that are asked for by whole batches; `rampup.data.memory.TensorData` is one."""

    def __len__(self) -> int: ...

    def batch(self, indices: Tensor) -> Any:
        """The samples at these positions, as tensors or as a tuple, list or dict of them."""


class Task:
    """What to train. `settings` holds the engine's keys and those of the recipe."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def data(self) -> tuple[Data, Data | None]:
        """Training and validation data: the same on every rank. Without validation, monitor=train_loss."""
        raise NotImplementedError

    def model(self) -> nn.Module:
        raise NotImplementedError

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """By the settings; override it for parameter groups or another rule."""
        return optimizer_of(self.settings, model)

    def augment(self, batch: Any, epoch: int) -> Any:
        """What a batch of the training data looks like in this epoch, counted from 1; it is on the device already.

        Draw random numbers from the epoch and the number of each sample (`rampup.data.augment.draws`), and the run is
        the same on any number of ranks and after a resume.
        """
        return batch

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        """The mean over the samples of the batch."""
        raise NotImplementedError

    def evaluate(self, model: nn.Module, batch: Any) -> Mapping[str, Tensor]:
        """Sums over the samples of the batch: {"loss": ..., "accuracy": ...} become val_loss and val_accuracy."""
        raise NotImplementedError


class Classifier(Task):
    """A task that tells classes apart. Its batches are (inputs, labels), its model gives a score for each class.

    The engine counts what was taken for what, over all ranks: precision, recall, F1, confusion matrix, PR curves.
    """

    classes: tuple[str, ...]
    """Their names, in the order of the labels."""

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        inputs, labels = batch
        return cross_entropy(model(inputs), labels)

    def scores(self, model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
        """Of each sample a score for each class, from which softmax makes probabilities; and the right classes."""
        inputs, labels = batch
        return model(inputs), labels

    def sums(self, scores: Tensor, labels: Tensor) -> Mapping[str, Tensor]:
        """What is added up over the validation data; override it for metrics of your own."""
        return {
            "loss": cross_entropy(scores, labels, reduction="sum"),
            "accuracy": (scores.argmax(1) == labels).sum(),
        }

    def evaluate(self, model: nn.Module, batch: Any) -> Mapping[str, Tensor]:
        return self.sums(*self.scores(model, batch))

    def pictures(self, batch: Any) -> Tensor | None:
        """The samples as people see them: bytes (samples, height, width), or with three colours at the end."""
        return None


def optimizer_of(settings: Settings, model: nn.Module) -> torch.optim.Optimizer:
    """Fused where torch has it: one pass over all parameters instead of several for each.

    Without torch's compiler where nothing else brings it: on a CPU, not compiled, not in Lightning.
    """
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    places = {parameter.device.type for parameter in parameters}
    fused = places <= {"cpu", "cuda"} or None
    rule: Any = RULES[settings.optimizer]
    if places == {"cpu"} and not settings.compile and settings.engine != "lightning":
        rule = light(rule)
    momentum = {"momentum": settings.momentum} if settings.optimizer == "sgd" else {}
    made: torch.optim.Optimizer = rule(
        parameters, settings.lr, weight_decay=settings.weight_decay, fused=fused, **momentum
    )
    return made
