"""CIFAR-10: 50000 photos of 32 x 32 pixels to train on, 10000 to validate. `rampup fetch cifar10`
brings the data.

All images stay in memory as bytes; a batch is augmented and normalised as a whole, where the model
computes.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from rampup.recipe import Settings, dataset_folder, read_idx
from rampup.recipes.cifar10.model import build
from rampup.recipes.cifar10.settings import SIZE
from rampup.torch import Augment, Classifier, TensorData

MEAN, DEVIATION = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
"""Of the pixels of the training images, for red, green and blue."""


class Cifar10(Classifier):
    classes = (
        "airplane",
        "automobile",
        "bird",
        "cat",
        "deer",
        "dog",
        "frog",
        "horse",
        "ship",
        "truck",
    )

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        crop, flip, cutout = settings.crop, settings.flip, settings.cutout
        self.change = Augment(SIZE, MEAN, DEVIATION, crop=crop, flip=flip, cutout=cutout)
        self.last = settings.channels_last and settings.arch != "mlp"

    def data(self) -> tuple[TensorData, TensorData]:
        return self.part("train", self.settings.samples), self.part(
            "test", self.settings.validation
        )

    def part(self, name: str, samples: int) -> TensorData:
        """Numbers, pixels and labels. The pixels of a colour are one row: see Augment."""
        files = dataset_folder("cifar10")
        pixels = torch.from_numpy(read_idx(files / f"{name}-images-idx4-ubyte")[:samples]).flatten(
            2
        )
        labels = torch.from_numpy(read_idx(files / f"{name}-labels-idx1-ubyte")[:samples]).long()
        return TensorData(torch.arange(samples), pixels, labels)

    def model(self) -> nn.Module:
        return build(self.settings)

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """Biases and what normalisation learns are not pulled towards zero."""
        if self.settings.optimizer != "sgd":
            return super().optimizer(model)
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        decayed = [parameter for parameter in parameters if parameter.dim() > 1]
        others = [parameter for parameter in parameters if parameter.dim() <= 1]
        groups = [
            {"params": decayed, "weight_decay": self.settings.weight_decay},
            {"params": others},
        ]
        momentum: float = self.settings.momentum
        return torch.optim.SGD(
            groups, self.settings.lr, momentum, nesterov=momentum > 0, fused=True
        )

    def augment(self, batch: Any, epoch: int) -> Any:
        ids, pixels, labels = batch
        return self.laid_out(self.change(pixels, ids, self.settings.seed, epoch)), labels

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        images, labels = batch
        return cross_entropy(model(images), labels, label_smoothing=self.settings.label_smoothing)

    def scores(self, model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
        _, pixels, labels = batch
        images = self.laid_out(self.change.plain(pixels))
        scores = model(images)
        if self.settings.tta:
            scores = (scores + model(images.flip(3))) / 2
        return scores, labels

    def laid_out(self, images: Tensor) -> Tensor:
        return images.contiguous(memory_format=torch.channels_last) if self.last else images

    def pictures(self, batch: Any) -> Tensor:
        pixels: Tensor = batch[1]
        return pixels.view(-1, 3, SIZE, SIZE).permute(0, 2, 3, 1)
