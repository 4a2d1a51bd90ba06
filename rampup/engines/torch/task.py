"""What a recipe of the torch engine provides: data, a model, a loss, the sums of an evaluation.

A recipe subclasses Task in its train.py, and the engine does the rest. Everything in here is plain
PyTorch and knows nothing about ranks: the engine cuts the batches and adds up.
"""

from collections.abc import Mapping
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from rampup.core.mlperf import Benchmark
from rampup.core.settings import Settings
from rampup.data.reader import SampleReader
from rampup.engines.torch.lamb import Lamb
from rampup.engines.torch.optimizers import lighten
from rampup.errors import undefined

RULES = {
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "sgd": torch.optim.SGD,
    "lamb": Lamb,
}
"""By the setting `optimizer`."""


class Data(Protocol):
    """Samples that are read in whole batches; `rampup.torch.TensorData` is one."""

    def __len__(self) -> int: ...

    def batch(self, indices: Tensor) -> Any:
        """Return the samples at these positions: a tensor, or a tuple, list or dict of tensors."""


class Task:
    """What to train. `settings` holds the engine's keys and those of the recipe."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def data(self) -> tuple[Data | SampleReader, Data | SampleReader | None]:
        """Return training and validation data, the same on every rank.

        Of a SampleReader the next batches are read while a step computes. Without validation data, set monitor=train_loss.
        """
        raise undefined(
            self, "data", "return training and validation data; rampup new shows a whole recipe"
        )

    def model(self) -> nn.Module:
        raise undefined(self, "model", "return a torch.nn.Module")

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """Build the optimizer of the settings; override it for parameter groups or another rule."""
        return optimizer_of(self.settings, model)

    def benchmark(self, optimizer: torch.optim.Optimizer, steps: int) -> Benchmark | None:
        """Return the benchmark of MLPerf that this is, if it is one: then its log is written.

        `steps` is how long the schedule of the learning rate is.
        """
        return None

    def augment(self, batch: Any, epoch: int) -> Any:
        """Return what a batch of the training data looks like in this epoch, counted from 1.

        The batch is on the device already. Draw random numbers from the epoch and the number of
        each sample (`rampup.torch.draws`), and the run is the same on any number of ranks
        and after a resume.
        """
        return batch

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        """Return the mean loss over the samples of the batch."""
        raise undefined(self, "loss", "return the mean loss over the samples of a batch")

    def evaluate(self, model: nn.Module, batch: Any) -> Mapping[str, Tensor]:
        """Return sums over the samples of the batch.

        {"loss": ..., "accuracy": ...} become val_loss and val_accuracy.
        """
        raise undefined(
            self,
            "evaluate",
            "return sums over the samples of a batch; or return None as validation data, and set "
            "monitor=train_loss",
        )

    def metrics(self, sums: Mapping[str, Tensor], samples: int) -> Mapping[str, float]:
        """Return the metrics of a validation, from what `evaluate` gave, summed over all ranks.

        Override it where a metric is not a mean over the samples. The names must not depend on the
        values.
        """
        return {name: (total / samples).item() for name, total in sums.items()}


class Classifier(Task):
    """A task that distinguishes classes.

    Its batches are (inputs, labels), and its model gives a score for each class. The engine counts
    the predictions over all ranks: precision, recall, F1, confusion matrix, PR curves.
    """

    classes: tuple[str, ...]
    """The names of the classes, in the order of the labels."""

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        inputs, labels = batch
        return cross_entropy(model(inputs), labels)

    def scores(self, model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
        """Return a row of scores for each sample, and the correct classes.

        softmax makes probabilities of the scores.
        """
        inputs, labels = batch
        return model(inputs), labels

    def sums(self, scores: Tensor, labels: Tensor) -> Mapping[str, Tensor]:
        """Return what is added up over the validation data; override it for your own metrics."""
        return {
            "loss": cross_entropy(scores, labels, reduction="sum"),
            "accuracy": (scores.argmax(1) == labels).sum(),
        }

    def evaluate(self, model: nn.Module, batch: Any) -> Mapping[str, Tensor]:
        return self.sums(*self.scores(model, batch))

    def pictures(self, batch: Any) -> Tensor | None:
        """Return the samples as people see them, or None.

        They are bytes of shape (samples, height, width), or with three colours at the end.
        """
        return None


def optimizer_of(settings: Settings, model: nn.Module) -> torch.optim.Optimizer:
    """Fused where torch has it: one pass over all parameters instead of several for each.

    Without torch's compiler where nothing else brings it: on a CPU, not compiled, not in Lightning.
    """
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    places = {parameter.device.type for parameter in parameters}
    rule: Any = RULES[settings.optimizer]
    options: dict[str, Any] = {"weight_decay": settings.weight_decay}
    if settings.optimizer == "sgd":
        options["momentum"] = settings.momentum
    else:
        options["betas"] = tuple(settings.get("betas", (0.9, 0.999)))
        options["eps"] = settings.get("eps", 1e-8)
    if rule is not Lamb:
        options["fused"] = places <= {"cpu", "cuda"} or None
    compiles = settings.get("compile") or settings.get("engine") == "lightning"
    if places == {"cpu"} and not compiles:
        rule = lighten(rule)
    made: torch.optim.Optimizer = rule(parameters, settings.lr, **options)
    return made
