"""The networks of the cifar10 recipe, for images of 32 x 32: a small fast one, ResNet-18, an MLP,
torchvision's.

`build` is called by train.py on every rank. Weights that others have trained come from the cache,
never from a network.
"""

import importlib
from typing import Any

import torch
from torch import Tensor, nn

from rampup.recipe import RampupError, Settings, weights_file, weights_name
from rampup.recipes.cifar10.settings import OWN

CLASSES = 10


def build(settings: Settings) -> nn.Module:
    arch: str = settings.arch
    if arch == "small":
        return Small(settings.width)
    if arch == "mlp":
        return mlp()
    model = ResNet18() if arch == "resnet18" else of_torchvision(arch)
    if settings.pretrained:
        load_trained(model, arch)
    return model


def mlp() -> nn.Module:
    layers = (
        nn.Linear(3072, 128),
        nn.ReLU(),
        nn.Linear(128, 256),
        nn.ReLU(),
        nn.Linear(256, CLASSES),
    )
    return nn.Sequential(nn.Flatten(), *layers)


# the small one ------------------------------------------------------------------------------------


def convolution(wide_in: int, wide_out: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(wide_in, wide_out, 3, padding=1, bias=False),
        nn.BatchNorm2d(wide_out),
        nn.ReLU(inplace=True),
    )


class Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(convolution(width, width), convolution(width, width))

    def forward(self, x: Tensor) -> Tensor:
        return torch.add(x, self.layers(x))


class Small(nn.Module):
    """Eight convolutions and one linear layer; the image is halved four times, so most of the work
    is on small ones."""

    def __init__(self, width: int) -> None:
        super().__init__()
        halve = nn.MaxPool2d(2)
        self.layers = nn.Sequential(
            convolution(3, width),
            convolution(width, 2 * width),
            halve,
            Residual(2 * width),
            convolution(2 * width, 4 * width),
            halve,
            convolution(4 * width, 8 * width),
            halve,
            Residual(8 * width),
        )
        self.head = nn.Linear(8 * width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        features: Tensor = self.layers(x).amax((2, 3))
        scores: Tensor = self.head(features)
        return scores / 8  # so that the first scores are small, and the first losses too


# ResNet-18 ----------------------------------------------------------------------------------------


class Basic(nn.Module):
    """Two convolutions, and around them what came in. The names are torchvision's, so that its
    weights fit."""

    def __init__(self, wide_in: int, wide_out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(wide_in, wide_out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(wide_out)
        self.conv2 = nn.Conv2d(wide_out, wide_out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(wide_out)
        self.downsample: nn.Module = nn.Identity()
        if stride > 1 or wide_in != wide_out:
            shortcut = nn.Conv2d(wide_in, wide_out, 1, stride, bias=False)
            self.downsample = nn.Sequential(shortcut, nn.BatchNorm2d(wide_out))

    def forward(self, x: Tensor) -> Tensor:
        found = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(self.bn2(self.conv2(found)) + self.downsample(x))


class ResNet18(nn.Module):
    """With a stem for small images: a convolution of 3 x 3 that keeps the size, and no pooling
    after it."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.layer1 = nn.Sequential(Basic(64, 64, 1), Basic(64, 64, 1))
        self.layer2 = nn.Sequential(Basic(64, 128, 2), Basic(128, 128, 1))
        self.layer3 = nn.Sequential(Basic(128, 256, 2), Basic(256, 256, 1))
        self.layer4 = nn.Sequential(Basic(256, 512, 2), Basic(512, 512, 1))
        self.fc = nn.Linear(512, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.bn1(self.conv1(x)))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        scores: Tensor = self.fc(x.mean((2, 3)))
        return scores


# torchvision --------------------------------------------------------------------------------------


def of_torchvision(arch: str) -> nn.Module:
    """By its name there; its last layer gets ten outputs. It is made for larger images: expect less
    than of ours."""
    try:
        models: Any = importlib.import_module("torchvision.models")
    except ImportError as error:
        own = " or ".join(f"arch={name}" for name in OWN)
        raise RampupError(
            f"arch={arch}: torchvision can't be imported: {error}", f"{own} need none"
        ) from None
    model: nn.Module = models.get_model(arch, weights=None, num_classes=CLASSES)
    return model


def load_trained(model: nn.Module, arch: str) -> None:
    """What fits of the cached weights: not the last layer, and of our ResNet-18 not the stem
    either."""
    found = torch.load(weights_file(arch), map_location="cpu", weights_only=True)
    own = model.state_dict()
    fitting = {
        key: value for key, value in found.items() if key in own and own[key].shape == value.shape
    }
    if len(fitting) < len(own) // 2:
        name = weights_name(arch)
        raise RampupError(f"the weights of {name} do not fit arch={arch}", f"rampup fetch {name}")
    model.load_state_dict({**own, **fitting})
