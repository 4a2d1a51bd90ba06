"""LAMB takes the steps of its formula."""

import pytest
import torch
from torch import Tensor, nn

from rampup.core.engines.torch import TORCH
from rampup.core.settings import Settings
from rampup.engines.torch.lamb import Lamb
from rampup.engines.torch.task import optimizer_of

LR, FIRST, SECOND, EPS, DECAY = 0.02, 0.9, 0.999, 1e-6, 0.01


def by_formula(weights: list[Tensor], gradients: list[list[Tensor]], decay: float) -> list[Tensor]:
    """Return the weights after the steps, computed in float64 one number after the other."""
    weights = [weight.double() for weight in weights]
    means = [torch.zeros_like(weight) for weight in weights]
    squares = [torch.zeros_like(weight) for weight in weights]
    for step, found in enumerate(gradients, 1):
        norm = sum(float((gradient.double() ** 2).sum()) for gradient in found) ** 0.5
        for index, gradient in enumerate(found):
            clipped = gradient.double() / max(1.0, norm)
            means[index] = FIRST * means[index] + (1 - FIRST) * clipped
            squares[index] = SECOND * squares[index] + (1 - SECOND) * clipped**2
            mean = means[index] / (1 - FIRST**step)
            square = squares[index] / (1 - SECOND**step)
            update = mean / (square.sqrt() + EPS) + decay * weights[index]
            ratio = 1.0
            own, wanted = float(weights[index].norm()), float(update.norm())
            if decay and own > 0 and wanted > 0:
                ratio = own / wanted
            weights[index] = weights[index] - LR * ratio * update
    return weights


@pytest.mark.parametrize("decay", [0.0, DECAY])
@pytest.mark.parametrize("size", [0.01, 5.0])
def test_it_follows_the_formula(decay: float, size: float) -> None:
    generator = torch.Generator().manual_seed(3)
    weights = [torch.randn(4, 3, generator=generator), torch.zeros(5)]
    gradients = [
        [size * torch.randn(weight.shape, generator=generator) for weight in weights]
        for _ in range(6)
    ]
    parameters = [nn.Parameter(weight.clone()) for weight in weights]
    optimizer = Lamb(parameters, LR, (FIRST, SECOND), EPS, decay)
    for found in gradients:
        for parameter, gradient in zip(parameters, found, strict=True):
            parameter.grad = gradient.clone()
        optimizer.step()
    for parameter, expected in zip(parameters, by_formula(weights, gradients, decay), strict=True):
        assert torch.allclose(parameter.double(), expected, rtol=1e-5, atol=1e-7)


def test_the_settings_choose_it_and_its_state_can_be_restored() -> None:
    values = {key: setting.default for key, setting in TORCH.items()}
    settings = Settings(values | {"optimizer": "lamb", "eps": 1e-6, "betas": [0.8, 0.99]})

    def build() -> tuple[nn.Linear, torch.optim.Optimizer]:
        torch.manual_seed(1)
        model = nn.Linear(3, 2)
        return model, optimizer_of(settings, model)

    def step(model: nn.Linear, optimizer: torch.optim.Optimizer) -> None:
        model.weight.grad, model.bias.grad = torch.ones(2, 3), torch.ones(2)
        optimizer.step()

    straight, rule = build()
    assert type(rule).__name__ == "Lamb"
    assert rule.param_groups[0]["betas"] == (0.8, 0.99)
    for _ in range(4):
        step(straight, rule)
    first, its_rule = build()
    step(first, its_rule)
    second, resumed = build()
    second.load_state_dict(first.state_dict())
    resumed.load_state_dict(its_rule.state_dict())
    for _ in range(3):
        step(second, resumed)
    assert torch.equal(straight.weight, second.weight)
