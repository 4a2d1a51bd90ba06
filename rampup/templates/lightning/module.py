"""A small network that reads handwritten digits, as a LightningModule. It knows nothing of ranks,
clusters or rampup.

`rampup run` trains it by the settings in rampup.toml. Make it yours: the layers in `__init__`, what
counts in `validation_step`. Every argument of `__init__` is a setting: `rampup run channels=32`.
"""

import lightning.pytorch as pl
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

Batch = tuple[Tensor, Tensor]
CLASSES = 10


class LitDigits(pl.LightningModule):
    def __init__(self, channels: int = 16, dropout: float = 0.1, lr: float = 0.003) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.lr = lr
        self.layers = nn.Sequential(
            nn.Conv2d(1, channels, kernel_size=3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(channels, 2 * channels, kernel_size=3, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Dropout(dropout),
            nn.Linear(2 * channels * 4 * 4, CLASSES),
        )

    def forward(self, images: Tensor) -> Tensor:
        """A score for each class: with `classes` in rampup.toml, rampup counts them."""
        scores: Tensor = self.layers(images)
        return scores

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        images, labels = batch
        loss = cross_entropy(self(images), labels)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        images, labels = batch
        scores = self(images)
        # sync_dist: the mean over all ranks, not of the first one alone
        self.log("val_loss", cross_entropy(scores, labels), sync_dist=True)
        self.log("val_accuracy", (scores.argmax(dim=1) == labels).float().mean(), sync_dist=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=self.lr)
