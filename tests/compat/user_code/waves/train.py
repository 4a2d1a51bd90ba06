"""Two waves told apart, as docs/add-a-recipe.md of rampup 0.1.0 shows it.

The imports are what that page names. Runs keep a copy of such files, so the imports must work as
long as somebody resumes such a run.
"""

import os
import time

import torch
from torch import Tensor, nn

from rampup.data.augment import draws
from rampup.data.memory import TensorData
from rampup.engines.torch_task import Classifier, Task

assert issubclass(Classifier, Task)


class Waves(Classifier):
    classes = ("slow", "fast")

    def data(self) -> tuple[TensorData, TensorData]:
        generator = torch.Generator().manual_seed(self.settings.seed)
        label = torch.randint(2, (self.settings.samples,), generator=generator)
        at = torch.linspace(0, 6.28, 32)
        noise = 0.5 * torch.randn(len(label), 32, generator=generator)
        wave = torch.sin(at * (label[:, None] + 1)) + noise
        held_out = len(label) // 10
        validation = TensorData(wave[:held_out], label[:held_out])
        return TensorData(wave[held_out:], label[held_out:]), validation

    def model(self) -> nn.Module:
        return nn.Sequential(nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 2))

    def loss(self, model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
        if os.environ["RAMPUP_ATTEMPT"] == "1":
            time.sleep(self.settings.pause_s)
        return super().loss(model, batch)

    def augment(self, batch: tuple[Tensor, ...], epoch: int) -> tuple[Tensor, ...]:
        wave, label = batch
        (drawn,) = draws(self.settings.seed, epoch, torch.arange(len(label)), 1)
        return wave + 0.1 * drawn[:, None] / 2**53, label
