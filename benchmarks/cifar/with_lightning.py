"""CIFAR-10 with the Trainer of Lightning and a DataLoader that augments each image, two workers.

    python with_lightning.py ARCH SAMPLES EPOCHS        prints the seconds of the median epoch after the first

Network, batch size, optimizer, number of threads and memory format are those of the recipe. Nothing
is validated, and the default logger, checkpoint and progress bar of the Trainer are on.
"""

import statistics
import sys
import time
import warnings
from typing import Any

import lightning
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from with_dataloader import loader

from rampup.recipe import Settings
from rampup.recipes.cifar10 import model

WIDTH, BATCH_SIZE = 16, 256


class Classifier(lightning.LightningModule):
    def __init__(self, arch: str) -> None:
        super().__init__()
        self.last = arch != "mlp"
        self.model = model.build(Settings({"arch": arch, "width": WIDTH, "pretrained": False}))
        if self.last:
            self.model = self.model.to(memory_format=torch.channels_last)
        self.began, self.seconds = 0.0, []

    def training_step(self, batch: Any, index: int) -> Tensor:
        images, labels = batch
        if self.last:
            images = images.contiguous(memory_format=torch.channels_last)
        loss = cross_entropy(self.model(images), labels, label_smoothing=0.1)
        self.log("train_loss", loss)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(
            self.parameters(), 0.05, momentum=0.9, nesterov=True, weight_decay=5e-4
        )

    def on_train_epoch_start(self) -> None:
        self.began = time.perf_counter()

    def on_train_epoch_end(self) -> None:
        self.seconds.append(time.perf_counter() - self.began)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    arch, samples, epochs = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    module = Classifier(arch)
    lightning.Trainer(max_epochs=epochs).fit(module, loader(samples, BATCH_SIZE))
    print("epoch_s", statistics.median(module.seconds[1:]))
