"""A module with habits of which each is allowed: parts compiled by torch.jit, a list that forward()
fills, a metric called `step`, arguments named as settings of an engine are. And data whose loaders
divide it among ranks themselves."""

import os
import time

import lightning.pytorch as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler, TensorDataset


class OddHabits(pl.LightningModule):
    def __init__(
        self,
        strategy: str = "greedy",
        precision: int = 32,
        engine: str = "v8",
        device: str = "cuda",
    ):
        super().__init__()
        self.told = f"{strategy} {precision} {engine} {device}"
        self.body = torch.jit.script(nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU()))
        self.head = nn.Linear(8, 3)
        self.seen = []

    def forward(self, x):
        found = self.body(x)
        self.seen.append(found.mean())
        return self.head(found)

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = nn.functional.cross_entropy(self(x), y)
        loss = loss + 0.01 * torch.stack(self.seen).mean()
        self.seen.clear()
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        self.log("val_loss", nn.functional.cross_entropy(self(x), y), sync_dist=True)
        self.log("step", float(self.current_epoch), sync_dist=True)
        self.seen.clear()

    def on_train_end(self):
        print("told", self.told, flush=True)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.05)


def rows(count: int, seed: int):
    x = torch.randn(count, 4, generator=torch.Generator().manual_seed(seed))
    return TensorDataset(x, x[:, :3].argmax(1))


class EveryOther(Sampler):
    """Those samples of a data set that are this rank's."""

    def __init__(self, size: int):
        self.mine = range(int(os.environ["RANK"]), size, int(os.environ["WORLD_SIZE"]))

    def __iter__(self):
        return iter(self.mine)

    def __len__(self):
        return len(self.mine)


class DividedByHand(pl.LightningDataModule):
    """For `use_distributed_sampler=false`."""

    def train_dataloader(self):
        return DataLoader(rows(60, 1), batch_size=10)

    def val_dataloader(self):
        data = rows(103, 2)
        return DataLoader(data, batch_size=10, sampler=EveryOther(len(data)))


class Slow(Dataset):
    def __len__(self):
        return 60

    def __getitem__(self, index):
        time.sleep(0.01)
        return torch.randn(4), index % 3


class SlowData(DividedByHand):
    def train_dataloader(self):
        return DataLoader(Slow(), batch_size=10)


class NoData(DividedByHand):
    def train_dataloader(self):
        return DataLoader(rows(0, 1), batch_size=10)
