"""Digits: 1797 images of 8x8 pixels that come with rampup, a perceptron with a hidden layer."""

from typing import Any

import torch
from torch import Tensor, nn

from rampup.recipe import read_digits
from rampup.torch import Classifier, TensorData, permutation

VALIDATION = 360
MEAN, DEVIATION = 4.884, 6.017
"""Of the pixels, which go from 0 to BRIGHTEST."""
BRIGHTEST = 16


class Digits(Classifier):
    classes = tuple("0123456789")

    def data(self) -> tuple[TensorData, TensorData]:
        pixels, digits = read_digits()
        images = torch.from_numpy(pixels).float().sub_(MEAN).div_(DEVIATION)
        labels = torch.from_numpy(digits)
        # the same split for every seed and on every rank
        order = torch.from_numpy(permutation(0, 0, len(labels)))
        train, validation = order[VALIDATION:], order[:VALIDATION]
        return TensorData(images[train], labels[train]), TensorData(
            images[validation], labels[validation]
        )

    def model(self) -> nn.Module:
        return nn.Sequential(
            nn.Linear(64, self.settings.hidden), nn.ReLU(), nn.Linear(self.settings.hidden, 10)
        )

    def pictures(self, batch: Any) -> Tensor:
        images: Tensor = batch[0]
        return ((images * DEVIATION + MEAN) * (255 / BRIGHTEST)).round().byte().view(-1, 8, 8)
