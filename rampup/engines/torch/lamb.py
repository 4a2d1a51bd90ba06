"""LAMB: Adam with a step for each tensor that is as long as the tensor itself asks for.

`optimizer=lamb` chooses it. The gradients are first scaled so that their norm over all parameters is
at most `max_grad_norm`. Then each tensor takes a step in the direction of Adam with decoupled weight
decay, scaled by the norm of the tensor over the norm of that direction. Plain PyTorch: it needs no
package, and runs on any device.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer


class Lamb(Optimizer):
    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.01,
        max_grad_norm: float = 1.0,
    ) -> None:
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "bias_correction": True,
            "grad_averaging": True,
            "max_grad_norm": max_grad_norm,
        }
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        clip = self._clip()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, parameter.grad / clip, group)
        return loss

    def _clip(self) -> Tensor:
        """Return what the gradients are divided by: 1, or more where their norm is too large."""
        gradients = [
            parameter.grad
            for group in self.param_groups
            for parameter in group["params"]
            if parameter.grad is not None
        ]
        if not gradients:
            return torch.ones(())
        norms = torch.stack([gradient.norm() for gradient in gradients])
        most: float = self.defaults["max_grad_norm"]
        return (norms.norm() / most).clamp(min=1.0)

    def _update(self, parameter: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        state = self.state[parameter]
        if not state:
            state["step"] = torch.zeros(())
            state["exp_avg"] = torch.zeros_like(parameter)
            state["exp_avg_sq"] = torch.zeros_like(parameter)
        first, second = group["betas"]
        state["step"] += 1
        step = float(state["step"])
        mean, square = state["exp_avg"], state["exp_avg_sq"]
        mean.mul_(first).add_(gradient, alpha=1 - first)
        square.mul_(second).addcmul_(gradient, gradient, value=1 - second)
        divisor = (square / (1 - second**step)).sqrt_().add_(group["eps"])
        direction = (mean / (1 - first**step)).div_(divisor)
        ratio: Tensor | float = 1.0
        if group["weight_decay"]:
            direction.add_(parameter, alpha=group["weight_decay"])
            own, wanted = parameter.norm(), direction.norm()
            ratio = torch.where((own > 0) & (wanted > 0), own / wanted, torch.ones_like(own))
        parameter.sub_(direction * (group["lr"] * ratio))
