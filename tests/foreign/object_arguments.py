"""A LightningModule as the most popular templates write it: its network and its optimizer are
arguments, and it logs val/acc."""

import lightning.pytorch as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self, width: int = 8, block: nn.Module | None = None, title: str = "") -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, width), block or nn.ReLU(), nn.Linear(width, 2))
        print(f"net: {width} {type(block).__name__} {title}", flush=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


class Lit(pl.LightningModule):
    def __init__(self, net: nn.Module, optimizer: torch.optim.Optimizer, quick: bool = False):
        super().__init__()
        self.save_hyperparameters(logger=False)
        self.net = net

    def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
        return nn.functional.cross_entropy(self.net(batch[0]), batch[1])

    def validation_step(self, batch: list[torch.Tensor], index: int) -> None:
        found = self.net(batch[0]).argmax(1)
        self.log("val/acc", (found == batch[1]).float().mean())
        self.log("val/odd", torch.tensor(1.0))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return self.hparams.optimizer(params=self.parameters())

    def _load(self) -> DataLoader:
        x = torch.arange(400.0).reshape(100, 4) / 400
        return DataLoader(TensorDataset(x, (x.sum(1) > 2).long()), batch_size=10)

    def train_dataloader(self) -> DataLoader:
        return self._load()

    def val_dataloader(self) -> DataLoader:
        return self._load()
