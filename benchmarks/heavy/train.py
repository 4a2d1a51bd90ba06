"""The task of the drills: little to compute, much to save, and random numbers that must come back
exactly."""

import sys
import time
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from rampup.torch import Task, TensorData

INPUTS, CLASSES = 256, 10

# An optimizer of torch imports its whole compiler, which is half of the time to start. Nothing is
# compiled here, and a drill starts hundreds of times. These are the words of it that a loop without
# a compiler uses.
no_compiler = ModuleType("torch._dynamo")
no_compiler.__dict__.update(
    disable=lambda function, *words, **options: function,
    graph_break=lambda: None,
    trace_rules=SimpleNamespace(clear_lru_cache=lambda: None),
)
sys.modules.setdefault("torch._dynamo", no_compiler)


class Heavy(Task):
    def data(self) -> tuple[TensorData, None]:
        chance = torch.Generator().manual_seed(1)
        images = torch.randn(
            self.settings.steps * self.settings.batch_size, INPUTS, generator=chance
        )
        return TensorData(images, torch.randint(CLASSES, (len(images),), generator=chance)), None

    def model(self) -> nn.Module:
        width = self.settings.width
        return nn.Sequential(
            nn.Linear(INPUTS, width), nn.ReLU(), nn.Dropout(0.2), nn.Linear(width, CLASSES)
        )

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        images, labels = batch
        time.sleep(self.settings.pause_s)
        return cross_entropy(model(images), labels)
