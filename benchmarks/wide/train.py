"""The task of the scaling lines: the same network and data as benchmarks/wide/by_hand.py."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from rampup.torch import Task, TensorData


class Wide(Task):
    def data(self) -> tuple[TensorData, None]:
        chance = torch.Generator().manual_seed(1)
        images = torch.randn(self.settings.samples, 784, generator=chance)
        return TensorData(images, torch.randint(10, (len(images),), generator=chance)), None

    def model(self) -> nn.Module:
        return nn.Sequential(
            nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)
        )

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        images, labels = batch
        return cross_entropy(model(images), labels)
