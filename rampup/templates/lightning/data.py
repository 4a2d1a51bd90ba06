"""Real handwritten digits, 8 by 8 pixels, as a LightningDataModule. They come with scikit-learn:
nothing to download.

Make it yours: downloads belong in `prepare_data`, which one rank of each node calls; every rank
calls `setup`. `num_workers` in rampup.toml sets how many processes read the data.
"""

import lightning.pytorch as pl
import torch
from sklearn.datasets import load_digits
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset, random_split

HELD_BACK = 360
"""Samples that are kept for validation."""
BRIGHTEST = 16
SPLIT_SEED = 0

Sample = tuple[Tensor, ...]
"""An image and its label."""


class Digits(pl.LightningDataModule):
    def __init__(self, batch_size: int = 64) -> None:
        super().__init__()
        self.batch_size = batch_size

    def setup(self, stage: str) -> None:
        digits = load_digits()
        images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / BRIGHTEST
        whole = TensorDataset(images, torch.tensor(digits.target))
        # a separate generator: the same samples are held back on every rank, whatever the seed of
        # the run is
        fixed = torch.Generator().manual_seed(SPLIT_SEED)
        self.train_data, self.val_data = random_split(
            whole, [len(whole) - HELD_BACK, HELD_BACK], fixed
        )

    def train_dataloader(self) -> DataLoader[Sample]:
        return DataLoader(self.train_data, self.batch_size, shuffle=True)

    def val_dataloader(self) -> DataLoader[Sample]:
        return DataLoader(self.val_data, self.batch_size)
