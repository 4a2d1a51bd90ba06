"""The network of DeepCam: its parameters, and maps of any size."""

from collections.abc import Iterator

import pytest
import torch
from torch import nn

from rampup.recipes.deepcam.model import DeepLab

PARTS = {
    "encoder": 37_778_400,
    "bottleneck": 15_535_104,
    "reducer": 6_240,
    "decoder": 3_134_976,
}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Small maps take a hundred times as long on threads that wait for each other on busy cores."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def count(part: nn.Module) -> int:
    return sum(parameter.numel() for parameter in part.parameters())


@pytest.mark.parametrize("stride", [16, 8])
def test_parameters_of_each_part(stride: int) -> None:
    with torch.device("meta"):
        model = DeepLab(16, 3, output_stride=stride)
    # without the convolution that halves the size in the third block
    fewer = 728 * 9 + 728 * 728 if stride == 8 else 0
    wanted = PARTS | {"encoder": PARTS["encoder"] - fewer}
    assert {name: count(part) for name, part in model.named_children()} == wanted
    assert count(model) == 56_454_720 - fewer
    biases = [
        name for name, part in model.named_modules() if getattr(part, "bias", None) is not None
    ]
    convolutions = (nn.Conv2d, nn.ConvTranspose2d)
    assert [name for name in biases if isinstance(model.get_submodule(name), convolutions)] == [
        "decoder.mix.2"
    ]


@pytest.mark.parametrize("stride", [16, 8])
@pytest.mark.parametrize("size", [(768, 1152), (96, 144), (101, 57), (33, 47)])
def test_scores_have_the_size_of_the_map(stride: int, size: tuple[int, int]) -> None:
    with torch.device("meta"):
        model = DeepLab(16, 3, output_stride=stride)
        deep = model.encoder(torch.zeros(2, 16, *size))[1]
        assert model(torch.zeros(2, 16, *size)).shape == (2, 3, *size)
    assert deep.shape[1:] == (2048, *(-(-side // stride) for side in size))


def test_what_is_seen_at_full_size() -> None:
    with torch.device("meta"):
        low, deep = DeepLab(16, 3).encoder(torch.zeros(1, 16, 768, 1152))
    assert low.shape == (1, 128, 192, 288) and deep.shape == (1, 2048, 48, 72)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("width", [0.05, 0.125])
def test_a_narrow_one_learns_in_either_layout(layout: torch.memory_format, width: float) -> None:
    """A 1x1 convolution with a stride corrupted the memory here: see Block."""
    torch.manual_seed(1)
    model = DeepLab(4, 3, width).to(memory_format=layout)  # type: ignore[call-overload]
    maps = torch.randn(2, 4, 96, 144).to(memory_format=layout)
    for _ in range(3):
        model(maps).square().mean().backward()
    gradients = [parameter.grad for parameter in model.parameters()]
    assert all(found is not None and bool(found.isfinite().all()) for found in gradients)


def test_the_pooled_branch_sees_the_whole_map() -> None:
    torch.manual_seed(1)
    bottleneck = DeepLab(4, 3, 0.05).eval().bottleneck
    deep = torch.zeros(1, bottleneck.pooled.in_channels, 40, 60)
    far = deep.clone()
    far[..., -1, -1] = 50.0  # farther away than any of the other branches looks
    with torch.no_grad():
        assert not torch.equal(bottleneck(deep)[..., 0, 0], bottleneck(far)[..., 0, 0])
