"""The parts that the torch engine's loop turns: data, model, running loss; built from the settings
of a run.

Called once by engines/torch/engine.py, before the first step. What can be wrong with a task or its
settings is said here, before any time is spent on training.
"""

import random

import numpy as np
import torch
from torch import Tensor, nn

from rampup.core.settings import Settings
from rampup.engines.torch.task import Data, Task
from rampup.engines.torch.world import World
from rampup.errors import RampupError

RANK_STRIDE = 1_000_003
"""Between the seeds of two ranks, so that runs with seeds 1, 2, 3 ... do not share one."""


def seed_everything(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def build_data(task: Task) -> tuple[Data, Data | None]:
    # a split that is drawn must be the same on every rank, and after a resume
    seed_everything(task.settings.seed)
    train, validation = task.data()
    if len(train) == 0:
        raise RampupError(
            f"data() of {type(task).__name__} gave no training samples", "check the recipe's data"
        )
    return train, validation


def build_model(task: Task, world: World) -> nn.Module:
    """The same weights on every rank; randomness after this differs between them, for dropout."""
    settings = task.settings
    seed_everything(settings.seed)
    model = task.model().to(world.device)
    if settings.channels_last:
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    world.copy_from_first([*model.parameters(), *model.buffers()])
    seed_everything(settings.seed + RANK_STRIDE * (world.rank + 1))
    return model.train()


def compiled(model: nn.Module, settings: Settings) -> nn.Module:
    """What is called in place of the model; its parameters are the model's own.

    Not `model.compile()`, which says nothing and does nothing for torch's own containers such as
    Sequential.
    """
    return torch.compile(model) if settings.compile else model  # type: ignore[return-value]


class RunningLoss:
    """The mean loss since the epoch began and since the last row.

    Summed on the device in float64: a step only adds, and only who reads it waits for a GPU.
    """

    def __init__(self, device: torch.device) -> None:
        kind = torch.float32 if device.type == "mps" else torch.float64
        self._sum = torch.zeros((), dtype=kind, device=device)
        self.restart()

    def restart(self) -> None:
        self._sum.zero_()
        self._samples = 0
        self._row_sum, self._row_samples = 0.0, 0

    def add(self, loss: Tensor, samples: int) -> None:
        self._sum.add_(loss, alpha=samples)
        self._samples += samples

    def state(self) -> dict[str, float]:
        """What a later attempt needs to go on in the middle of an epoch."""
        return {
            "sum": float(self._sum),
            "samples": self._samples,
            "row_sum": self._row_sum,
            "row": self._row_samples,
        }

    def load(self, state: dict[str, float]) -> None:
        self._sum.fill_(state["sum"])
        self._samples, self._row_samples = int(state["samples"]), int(state["row"])
        self._row_sum = state["row_sum"]

    def of_epoch(self) -> float:
        return float(self._sum) / max(1, self._samples)

    def since_row(self) -> float:
        """The mean since this was last asked."""
        total = float(self._sum)
        mean = (total - self._row_sum) / (self._samples - self._row_samples)
        self._row_sum, self._row_samples = total, self._samples
        return mean
