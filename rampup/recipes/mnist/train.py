"""MNIST: 60000 images of 28x28 pixels, a perceptron with two hidden layers. `rampup fetch mnist`
brings the data."""

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from rampup.recipe import dataset_folder, read_idx
from rampup.torch import Classifier, TensorData

TRAINING = 55_000
"""Of the 60000 images; the rest validates."""
MEAN, DEVIATION = 0.1307, 0.3081
"""Of the pixels of the training images."""


class Mnist(Classifier):
    classes = tuple("0123456789")

    def data(self) -> tuple[TensorData, TensorData]:
        files = dataset_folder("mnist")
        pixels = torch.from_numpy(read_idx(files / "train-images-idx3-ubyte"))
        labels = torch.from_numpy(read_idx(files / "train-labels-idx1-ubyte")).long()
        images = pixels.flatten(1).float().div_(255).sub_(MEAN).div_(DEVIATION)
        train, validation = slice(None, TRAINING), slice(TRAINING, None)
        return TensorData(images[train], labels[train]), TensorData(
            images[validation], labels[validation]
        )

    def model(self) -> nn.Module:
        layers: list[nn.Module] = []
        for wide_in, wide_out in pairwise([784, *self.settings.hidden]):
            layers += [nn.Linear(wide_in, wide_out), nn.ReLU()]
        return nn.Sequential(*layers, nn.Linear([784, *self.settings.hidden][-1], 10))

    def pictures(self, batch: Any) -> Tensor:
        images: Tensor = batch[0]
        return ((images * DEVIATION + MEAN) * 255).round().byte().view(-1, 28, 28)
