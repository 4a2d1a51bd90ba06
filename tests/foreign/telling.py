"""A module that prints what its Trainer does with it."""

import json

import torch
from lightning.pytorch.demos.boring_classes import BoringModel


class Telling(BoringModel):
    def on_fit_start(self):
        self.batches, self.norms = {"train": 0, "val": 0}, []

    def training_step(self, batch, batch_idx):
        self.batches["train"] += 1
        return super().training_step(batch, batch_idx)

    def validation_step(self, batch, batch_idx):
        self.batches["val"] += not self.trainer.sanity_checking
        return super().validation_step(batch, batch_idx)

    def on_before_zero_grad(self, optimizer):
        gradients = [weight.grad for weight in self.parameters() if weight.grad is not None]
        if gradients:
            self.norms.append(float(torch.nn.utils.get_total_norm(gradients)))

    def on_train_end(self):
        told = {
            "batches": self.batches,
            "norm": max(self.norms, default=0.0),
            "type": str(self.layer.weight.dtype),
        }
        told |= {
            "strategy": type(self.trainer.strategy).__name__,
            "steps": self.trainer.global_step,
        }
        told |= {"precision": self.trainer.precision, "unused": self.finds_unused()}
        print("told", json.dumps(told), flush=True)

    def finds_unused(self):
        return getattr(self.trainer.strategy, "_ddp_kwargs", {}).get("find_unused_parameters")
