"""MNIST as the tutorials of Lightning write it: a data set that transforms each sample, a
DataLoader, a Trainer.

    python with_lightning.py EPOCHS        prints the seconds of the quickest epoch

torchvision has no build that fits every torch, so its part is written out: its data set makes a
picture of each sample, `ToTensor` makes a tensor of that, and `Normalize` brings it to mean 0 and
deviation 1. Nothing is validated, and the default logger, checkpoint and progress bar of the
Trainer are on.
"""

import sys
import time
from typing import Any

import lightning
import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset

from rampup.recipe import dataset_folder, read_idx


class Digits(Dataset[Any]):
    def __init__(self) -> None:
        self.images = read_idx(dataset_folder("mnist") / "train-images-idx3-ubyte")[:55_000]
        self.labels = read_idx(dataset_folder("mnist") / "train-labels-idx1-ubyte")[:55_000]

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        picture = Image.fromarray(self.images[index])
        return normalize(to_tensor(picture), (0.1307,), (0.3081,)), int(self.labels[index])


def to_tensor(picture: Image.Image) -> Tensor:
    pixels = torch.from_numpy(np.array(picture, np.uint8, copy=True))
    pixels = pixels.view(picture.size[1], picture.size[0], 1).permute(2, 0, 1).contiguous()
    return pixels.to(torch.float32).div(255)


def normalize(image: Tensor, mean: tuple[float, ...], deviation: tuple[float, ...]) -> Tensor:
    means = torch.as_tensor(mean, dtype=image.dtype, device=image.device).view(-1, 1, 1)
    deviations = torch.as_tensor(deviation, dtype=image.dtype, device=image.device).view(-1, 1, 1)
    return image.clone().sub_(means).div_(deviations)


class Classifier(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer_1, self.layer_2, self.layer_3 = (
            nn.Linear(784, 128),
            nn.Linear(128, 256),
            nn.Linear(256, 10),
        )
        self.began, self.seconds = 0.0, []

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.layer_1(x.view(x.size(0), -1)))
        return self.layer_3(torch.relu(self.layer_2(x)))

    def training_step(self, batch: Any, index: int) -> Tensor:
        x, y = batch
        loss = cross_entropy(self(x), y)
        self.log("train_loss", loss)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=1e-3)

    def on_train_epoch_start(self) -> None:
        self.began = time.perf_counter()

    def on_train_epoch_end(self) -> None:
        self.seconds.append(time.perf_counter() - self.began)


model = Classifier()
lightning.Trainer(max_epochs=int(sys.argv[1])).fit(
    model, DataLoader(Digits(), batch_size=100, shuffle=True)
)
print("epoch_s", min(model.seconds))
