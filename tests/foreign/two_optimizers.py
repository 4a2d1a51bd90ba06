"""Manual optimisation with two optimizers that take turns, as in a generative adversarial
network."""

import lightning.pytorch as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class TwoOptimizers(pl.LightningModule):
    def __init__(self, width: int = 8, lr: float = 1e-2):
        super().__init__()
        self.save_hyperparameters()
        self.automatic_optimization = False
        self.generator = nn.Sequential(
            nn.Linear(4, width), nn.ReLU(), nn.Dropout(0.1), nn.Linear(width, 2)
        )
        self.critic = nn.Sequential(nn.Linear(2, width), nn.ReLU(), nn.Linear(width, 1))

    def training_step(self, batch, batch_idx):
        (real,) = batch
        of_generator, of_critic = self.optimizers()
        made = self.generator(torch.randn(len(real), 4))
        loss = nn.functional.softplus(-self.critic(made)).mean()
        of_generator.zero_grad()
        self.manual_backward(loss)
        of_generator.step()
        doubt = nn.functional.softplus(self.critic(made.detach())) + nn.functional.softplus(
            -self.critic(real)
        )
        of_critic.zero_grad()
        self.manual_backward(doubt.mean())
        of_critic.step()
        self.log_dict({"g_loss": loss, "c_loss": doubt.mean()})

    def configure_optimizers(self):
        lr = self.hparams.lr
        generator = torch.optim.Adam(self.generator.parameters(), lr)
        return generator, torch.optim.SGD(self.critic.parameters(), lr)

    def train_dataloader(self):
        points = torch.randn(96, 2, generator=torch.Generator().manual_seed(0))
        return DataLoader(TensorDataset(points), batch_size=8, shuffle=True)
