"""A regression on an IterableDataset: no length, no order to shuffle, each rank reads its own
part."""

import lightning.pytorch as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset


class Stream(IterableDataset):
    def __init__(self, samples: int):
        self.samples = samples

    def __iter__(self):
        together = torch.distributed.is_initialized()
        rank, world = (
            (torch.distributed.get_rank(), torch.distributed.get_world_size())
            if together
            else (0, 1)
        )
        numbers = torch.Generator().manual_seed(rank)
        for _ in range(self.samples // world):
            x = torch.randn(4, generator=numbers)
            yield x, x.sum()


class Streaming(pl.LightningModule):
    def __init__(self, samples: int = 80, lr: float = 1e-2):
        super().__init__()
        self.samples, self.lr = samples, lr
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.1), nn.Linear(8, 1))

    def training_step(self, batch, batch_idx):
        x, y = batch
        return nn.functional.mse_loss(self.layers(x).squeeze(1), y)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), self.lr)

    def train_dataloader(self):
        return DataLoader(Stream(self.samples), batch_size=4)
