"""A classifier of small pictures with forward() and loaders of its own; its training pictures
change at random."""

import random

import lightning.pytorch as pl
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Pictures(Dataset):
    def __init__(self, count: int, seed: int, changed: bool):
        self.x = torch.randn(count, 1, 4, 4, generator=torch.Generator().manual_seed(seed))
        self.changed = changed

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        x, label = self.x[index], int(self.x[index, 0, 0, :3].argmax())
        if self.changed:
            x = (
                x
                + 0.1 * torch.randn(1, 4, 4)
                + 0.1 * random.random()
                + 0.1 * float(np.random.rand())
            )
        return x, label


class SmallPictures(pl.LightningModule):
    def __init__(self, lr: float = 1e-2, validation: int = 211):
        super().__init__()
        self.save_hyperparameters()
        self.layers = nn.Sequential(
            nn.Flatten(), nn.Linear(16, 12), nn.ReLU(), nn.Dropout(0.1), nn.Linear(12, 3)
        )

    def forward(self, x):
        return self.layers(x)

    def training_step(self, batch, batch_idx):
        x, y = batch
        return nn.functional.cross_entropy(self(x), y)

    def validation_step(self, batch, batch_idx):
        x, y = batch
        self.log("val_loss", nn.functional.cross_entropy(self(x), y), sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), self.hparams.lr)

    def train_dataloader(self):
        return DataLoader(Pictures(160, 1, changed=True), batch_size=8, shuffle=True)

    def val_dataloader(self):
        return DataLoader(Pictures(self.hparams.validation, 2, changed=False), batch_size=30)


class Probabilities(SmallPictures):
    """Its forward() ends with a softmax."""

    def forward(self, x):
        return self.layers(x).softmax(1)


class Named(SmallPictures):
    """Its batches are dictionaries."""

    def validation_step(self, batch, batch_idx):
        super().validation_step((batch["x"], batch["y"]), batch_idx)

    def val_dataloader(self):
        samples = [{"x": x, "y": y} for x, y in Pictures(40, 2, changed=False)]
        return DataLoader(samples, batch_size=10)
