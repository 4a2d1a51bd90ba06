"""The MLP of the tutorials on data in memory: a LightningModule that knows nothing of rampup and
times its epochs."""

import time
from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

SAMPLES, BATCH = 40_000, 100


class Timed(pl.LightningModule):
    seconds: list[float] = []
    """Of every epoch, of whoever trained last."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 10)
        )

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        images, labels = batch
        loss = cross_entropy(self.layers(images), labels)
        self.log("train_loss", loss)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=1e-3)

    def train_dataloader(self) -> DataLoader[Any]:
        data = TensorDataset(torch.randn(SAMPLES, 784), torch.randint(10, (SAMPLES,)))
        whole_batches = torch.utils.data.BatchSampler(
            torch.utils.data.RandomSampler(data), BATCH, drop_last=False
        )
        return DataLoader(data, sampler=whole_batches, batch_size=None)

    def on_train_epoch_start(self) -> None:
        self.began = time.process_time()  # all threads of ours, and not who else uses the machine

    def on_train_epoch_end(self) -> None:
        Timed.seconds.append(time.process_time() - self.began)


class Large(pl.LightningModule):
    """32 MB to save."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4096, 2048)
