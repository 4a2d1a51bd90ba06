"""The parts of a training with torch that are built from a task: data, model, running loss.

The engines of torch and Lightning call these once, before the first step, so that a mistake in a
task or its settings is reported before any time is spent on training.
"""

import random
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rampup.core.settings import Settings
from rampup.data.reader import SampleReader
from rampup.engines import parts
from rampup.engines.torch.batch_statistics import share_statistics
from rampup.engines.torch.task import Data, Task
from rampup.engines.torch.world import World
from rampup.errors import RampupError


def seed_everything(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def build_data(task: Task) -> tuple[Data, Data | None]:
    # a split that is drawn must be the same on every rank, and after a resume
    seed_everything(task.settings.seed)
    train: Any
    validation: Any
    train, validation = task.data()
    if isinstance(train, SampleReader) or isinstance(validation, SampleReader):
        from rampup.engines.torch.streams import open_streams  # not for data in memory

        train, validation = open_streams(train, validation, task.settings)
    if len(train) == 0:
        raise RampupError(
            f"data() of {type(task).__name__} gave no training samples", "check the recipe's data"
        )
    return train, validation


def build_model(task: Task, world: World) -> nn.Module:
    """Build the same weights on every rank; random numbers differ between ranks after this."""
    settings = task.settings
    seed_everything(settings.seed)
    model = task.model().to(world.device)
    if settings.channels_last:
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    world.broadcast([*model.parameters(), *model.buffers()])
    model = share_statistics(model, settings.get("batchnorm_group_size", 1), world)
    seed_everything(parts.rank_seed(settings.seed, world.rank))
    return model.train()


def compile_model(model: nn.Module, settings: Settings) -> nn.Module:
    """Return what to call in place of the model; its parameters are the model's own.

    This is not `model.compile()`, which silently does nothing for torch's own containers such as
    Sequential.
    """
    return torch.compile(model) if settings.compile else model  # type: ignore[return-value]


class RunningLoss(parts.RunningLoss):
    """The mean training loss, summed on the device of the model."""

    def __init__(self, device: torch.device) -> None:
        kind = torch.float32 if device.type == "mps" else torch.float64
        self._sum = torch.zeros((), dtype=kind, device=device)

    def add(self, loss: Tensor, samples: int) -> None:
        self._sum.add_(loss, alpha=samples)
        self.samples += samples

    def _read_sum(self) -> float:
        return float(self._sum)

    def _write_sum(self, value: float) -> None:
        self._sum.fill_(value)
