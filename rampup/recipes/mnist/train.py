"""MNIST: 60000 images of 28x28 pixels, a perceptron with two hidden layers. `rampup fetch mnist` brings the data."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from rampup.data.fetch import folder
from rampup.data.idx import read_idx
from rampup.data.memory import TensorData
from rampup.engines.torch_task import Task

TRAINING = 55_000
"""Of the 60000 images; the rest validates."""
MEAN, DEVIATION = 0.1307, 0.3081
"""Of the pixels of the training images."""


class Mnist(Task):
    def data(self) -> tuple[TensorData, TensorData]:
        files = folder("mnist")
        pixels = torch.from_numpy(read_idx(files / "train-images-idx3-ubyte"))
        labels = torch.from_numpy(read_idx(files / "train-labels-idx1-ubyte")).long()
        images = pixels.flatten(1).float().div_(255).sub_(MEAN).div_(DEVIATION)
        train, validation = slice(None, TRAINING), slice(TRAINING, None)
        return TensorData(images[train], labels[train]), TensorData(images[validation], labels[validation])

    def model(self) -> nn.Module:
        layers: list[nn.Module] = []
        for wide_in, wide_out in pairwise([784, *self.settings.hidden]):
            layers += [nn.Linear(wide_in, wide_out), nn.ReLU()]
        return nn.Sequential(*layers, nn.Linear([784, *self.settings.hidden][-1], 10))

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        images, labels = batch
        return cross_entropy(model(images), labels)

    def evaluate(self, model: nn.Module, batch: Any) -> Mapping[str, Tensor]:
        images, labels = batch
        scores = model(images)
        return {
            "loss": cross_entropy(scores, labels, reduction="sum"),
            "accuracy": (scores.argmax(1) == labels).sum(),
        }
