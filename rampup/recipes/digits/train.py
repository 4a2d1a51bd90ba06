"""scikit-learn's digits: 1797 images of 8x8 pixels that come with the library, a perceptron with one hidden layer."""

from collections.abc import Mapping
from typing import Any

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from rampup.data.memory import TensorData
from rampup.data.order import permutation
from rampup.engines.torch_task import Task

VALIDATION = 360
MEAN, DEVIATION = 4.884, 6.017
"""Of the pixels, which go from 0 to 16."""


class Digits(Task):
    def data(self) -> tuple[TensorData, TensorData]:
        digits = load_digits()
        images = torch.from_numpy(digits.data).float().sub_(MEAN).div_(DEVIATION)
        labels = torch.from_numpy(digits.target).long()
        order = torch.from_numpy(permutation(0, 0, len(labels)))  # the same split for every seed and on every rank
        train, validation = order[VALIDATION:], order[:VALIDATION]
        return TensorData(images[train], labels[train]), TensorData(images[validation], labels[validation])

    def model(self) -> nn.Module:
        return nn.Sequential(nn.Linear(64, self.settings.hidden), nn.ReLU(), nn.Linear(self.settings.hidden, 10))

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
