"""A classifier with its own ModelCheckpoint, EarlyStopping and LearningRateMonitor, and its data
module."""

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import EarlyStopping, LearningRateMonitor, ModelCheckpoint
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split


class OwnCallbacks(pl.LightningModule):
    def __init__(self, hidden: int = 16, lr: float = 1e-2, patience: int = 3):
        super().__init__()
        self.save_hyperparameters()
        self.layers = nn.Sequential(
            nn.Linear(6, hidden), nn.BatchNorm1d(hidden), nn.ReLU(), nn.Linear(hidden, 3)
        )

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = nn.functional.cross_entropy(self.layers(x), y)
        self.log("train_loss", loss, on_step=True, on_epoch=True)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        scores = self.layers(x)
        self.log("val_loss", nn.functional.cross_entropy(scores, y), sync_dist=True)
        self.log("val_acc", (scores.argmax(1) == y).float().mean(), sync_dist=True)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), self.hparams.lr)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 40)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def configure_callbacks(self):
        stopping = EarlyStopping("val_loss", patience=self.hparams.patience)
        return [
            ModelCheckpoint(monitor="val_acc", mode="max", save_last=True),
            stopping,
            LearningRateMonitor(),
        ]


class Points(pl.LightningDataModule):
    def __init__(self, batch_size: int = 16, samples: int = 200):
        super().__init__()
        self.batch_size, self.samples = batch_size, samples

    def setup(self, stage):
        x = torch.randn(self.samples, 6, generator=torch.Generator().manual_seed(1))
        whole = TensorDataset(x, x[:, :3].argmax(1))
        self.train, self.val = random_split(whole, [0.8, 0.2])

    def train_dataloader(self):
        return DataLoader(self.train, self.batch_size, shuffle=True)

    def val_dataloader(self):
        return DataLoader(self.val, self.batch_size)
