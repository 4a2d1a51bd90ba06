"""Which layers of torch can't normalise over one sample: tried with two, and nothing is left of
it."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from rampup.core.settings import Settings
from rampup.engines.torch.device import autocast
from rampup.engines.torch.normalisation import find_normalising, try_two_samples
from rampup.engines.torch.task import Task
from rampup.torch import TensorData

CPU = torch.device("cpu")
WORLD: Any = SimpleNamespace(device=CPU, size=1)


class Counting(Task):
    """Counts and draws, as a user's loss may do."""

    steps = 0

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        self.steps += 1
        return (model(*batch) * torch.rand(())).mean()


class Frozen(nn.BatchNorm1d):
    def train(self, mode: bool = True) -> "Frozen":
        return super().train(False)


class Named(nn.Module):
    """Calls its layer with a named argument, and counts."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.calls = nn.BatchNorm1d(4), 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.layer(input=x)  # type: ignore[no-any-return]


def find(model: nn.Module, *shape: int, samples: int = 5) -> str:
    task, data = (
        Counting(Settings({"channels_last": False})),
        TensorData(torch.ones(samples, *shape)),
    )
    layers = find_normalising(model.train(), 1)
    if not layers:
        return ""
    found = try_two_samples(task, model, data, layers, autocast("fp32", CPU), WORLD)
    assert task.steps == 0
    return found


@pytest.mark.parametrize(
    ("model", "shape", "expected"),
    [
        (nn.BatchNorm1d(4), (4,), "the model (BatchNorm1d)"),
        (nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.BatchNorm1d(4))), (4,), "layer 1.0 (B"),
        (nn.BatchNorm1d(4, track_running_stats=False), (4,), "the model"),
        (nn.BatchNorm1d(4), (4, 3), ""),
        (nn.BatchNorm2d(4), (4, 3, 3), ""),
        (nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.BatchNorm2d(4)), (4, 3, 3), "layer 1 (BatchNo"),
        (nn.Sequential(nn.BatchNorm2d(4), nn.Flatten(), nn.BatchNorm1d(36)), (4, 3, 3), "layer 2"),
        (nn.SyncBatchNorm(4), (4,), "the model"),
        (Frozen(4), (4,), ""),
        (Named(), (4,), "layer layer (BatchNorm1d)"),
        (nn.InstanceNorm1d(4), (4, 3), ""),
        (nn.LayerNorm(4), (4,), ""),
    ],
)
def test_what_reaches_a_layer_decides(
    model: nn.Module, shape: tuple[int, ...], expected: str
) -> None:
    found = find(model, *shape)
    assert found.startswith(expected) if expected else found == ""


def test_one_sample_is_enough_to_try() -> None:
    assert find(nn.BatchNorm1d(4), 4, samples=1) == "the model (BatchNorm1d)"


def test_layers_that_normalise_over_all_ranks_are_left_alone() -> None:
    model = nn.Sequential(nn.SyncBatchNorm(4), nn.BatchNorm1d(4))
    assert list(find_normalising(model, 1)) == ["0", "1"]
    assert find_normalising(model, 2) == {}


def test_nothing_is_left_of_it() -> None:
    model = nn.Sequential(Named(), nn.Dropout(0.5))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    stood = torch.get_rng_state()
    assert find(model, 4)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert torch.equal(stood, torch.get_rng_state())
    assert model[0].calls == 0 and not model[0].layer._forward_pre_hooks
    assert all(parameter.grad is None for parameter in model.parameters())
