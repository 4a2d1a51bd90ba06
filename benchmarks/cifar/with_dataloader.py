"""CIFAR-10 as tutorials serve it: a data set that augments each image by itself, a DataLoader with
two workers.

    python with_dataloader.py EPOCHS        prints the seconds of the quickest epoch after the first

The images are in memory already, as in the recipe; torchvision has no build that fits every torch,
so what its transforms do with a tensor is written out: pad, crop, flip, erase a square, normalise.
"""

import random
import sys
import time
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad
from torch.utils.data import DataLoader, Dataset

from rampup.recipe import dataset_folder, read_idx

MEAN = torch.tensor([0.4914, 0.4822, 0.4465]).view(3, 1, 1)
DEVIATION = torch.tensor([0.2470, 0.2435, 0.2616]).view(3, 1, 1)


class Photos(Dataset[Any]):
    def __init__(self, samples: int) -> None:
        files = dataset_folder("cifar10")
        self.images = torch.from_numpy(read_idx(files / "train-images-idx4-ubyte")[:samples])
        self.labels = torch.from_numpy(read_idx(files / "train-labels-idx1-ubyte")[:samples]).long()

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return augmented(self.images[index]), self.labels[index]


def augmented(image: Tensor) -> Tensor:
    top, left = random.randrange(9), random.randrange(9)
    image = pad(image, (4, 4, 4, 4))[:, top : top + 32, left : left + 32]
    if random.random() < 0.5:
        image = image.flip(2)
    found = image.float().div(255).sub(MEAN).div(DEVIATION)
    row, column = random.randrange(32), random.randrange(32)
    found[:, max(0, row - 4) : row + 4, max(0, column - 4) : column + 4] = 0
    return found


def loader(samples: int, batch_size: int) -> DataLoader[Any]:
    return DataLoader(
        Photos(samples), batch_size, shuffle=True, num_workers=2, persistent_workers=True
    )


if __name__ == "__main__":
    served, seconds = loader(50_000, 256), []
    for _ in range(int(sys.argv[1])):
        began = time.perf_counter()
        for _ in served:
            pass
        seconds.append(time.perf_counter() - began)
    print("epoch_s", min(seconds[1:]))
