"""Running statistics of several ranks become those of all their samples."""

import pytest
import torch
from torch import Tensor, nn

from rampup.engines.torch.batch_statistics import combine_buffers, find_pairs
from rampup.engines.torch.state import pack, restore_buffers
from rampup.engines.torch.world import World
from rampup.runtime.context import RankContext


def make_model() -> nn.Module:
    return nn.Sequential(nn.Conv2d(2, 3, 1), nn.BatchNorm2d(3, momentum=1.0), nn.ReLU())


def seen(offset: float) -> tuple[nn.Module, Tensor]:
    """Return a model that has seen one batch, and what reached its normalisation."""
    torch.manual_seed(1)
    model = make_model().train()
    batch = torch.randn(40, 2, 3, 3) + offset
    model(batch)
    return model, model[0](batch).detach()


def test_the_variance_has_the_spread_of_the_means() -> None:
    models, reached = zip(*(seen(offset) for offset in (0.0, 2.0, 7.0)), strict=True)
    ranks = [[buffer.clone() for buffer in model.buffers()] for model in models]
    mean, variance, batches = combine_buffers(ranks, models[0])
    together = torch.cat(reached)
    assert torch.allclose(mean, together.mean((0, 2, 3)), atol=1e-5)
    assert torch.allclose(variance, together.var((0, 2, 3), unbiased=False), rtol=5e-3)
    averaged = torch.stack([model.get_buffer("1.running_var") for model in models]).mean(0)
    assert (variance > 1.5 * averaged).any(), "averaging alone is far too small"
    assert batches.item() == 1


def test_a_run_on_fewer_ranks_gets_the_combined_statistics() -> None:
    models = [seen(offset)[0] for offset in (0.0, 5.0)]
    packed = [pack(model.buffers()) for model in models]
    resumed = make_model()
    restore_buffers(packed, resumed, World(RankContext(), torch.device("cpu")))
    wanted = combine_buffers([list(model.buffers()) for model in models], resumed)
    for found, expected in zip(resumed.buffers(), wanted, strict=True):
        assert torch.equal(found, expected)
    assert not torch.equal(resumed.get_buffer("1.running_var"), torch.ones(3))


def test_other_buffers_are_averaged() -> None:
    class Other(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("running_var", torch.zeros(1))
            self.register_buffer("count", torch.tensor(0))

    model = Other()
    ranks = [[torch.tensor([1.0]), torch.tensor(4)], [torch.tensor([3.0]), torch.tensor(5)]]
    value, count = combine_buffers(ranks, model)
    assert (value.item(), count.item()) == (2.0, 4)
    assert list(find_pairs(model)) == []


@pytest.mark.parametrize("wrapped", [False, True])
def test_pairs_are_found_by_their_full_names(wrapped: bool) -> None:
    model = nn.Sequential(make_model()) if wrapped else make_model()
    prefix = "0.1." if wrapped else "1."
    assert list(find_pairs(model)) == [(f"{prefix}running_var", f"{prefix}running_mean")]
