"""Batch normalisation over several ranks: statistics that are combined, and a layer that shares them.

Each rank's running statistics describe the pieces that it has seen. After an epoch, and when a run
continues on another number of ranks, they are combined: the mean of the means, and the mean of the
variances plus the spread of the means. `batchnorm_group_size` makes groups of ranks that normalise
with common statistics in every step: torch's SyncBatchNorm on GPUs, which torch has for no other
device, and GroupBatchNorm elsewhere.
"""

from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from rampup.engines.torch.world import World
from rampup.errors import RampupError

# running statistics -------------------------------------------------------------------------------


def combine_buffers(ranks: list[list[Tensor]], model: nn.Module) -> list[Tensor]:
    """Return one value for each buffer of the model, from those of several ranks.

    Whole numbers are the first rank's. Other buffers are averaged, and variances get the spread of
    their means.
    """
    means = dict(find_pairs(model))
    names = [name for name, _ in model.named_buffers()]
    stacked = {
        name: torch.stack(list(values))
        for name, *values in zip(names, *ranks, strict=True)
        if values[0].is_floating_point()
    }
    found = []
    for name, first in zip(names, ranks[0], strict=True):
        if name not in stacked:
            found.append(first)
            continue
        combined = stacked[name].mean(0)
        if name in means:
            combined += stacked[means[name]].var(0, unbiased=False)
        found.append(combined)
    return found


def combine_over_ranks(model: nn.Module, world: World) -> None:
    """Give the buffers of all ranks their combined values."""
    if world.size == 1:
        return
    means = dict(find_pairs(model))
    buffers = dict(model.named_buffers())
    own = {name: buffers[mean].clone() for name, mean in means.items()}
    world.average(buffer for buffer in buffers.values() if buffer.is_floating_point())
    for name, mean in means.items():
        spread = (own[name] - buffers[mean]).square_()
        world.average([spread])
        buffers[name] += spread


def find_pairs(model: nn.Module) -> Iterator[tuple[str, str]]:
    """Yield the names of each running variance and of the running mean that belongs to it."""
    known = {name for name, _ in model.named_buffers()}
    for name, module in model.named_modules():
        if isinstance(module, _BatchNorm) and module.running_var is not None:
            path = f"{name}." if name else ""
            if f"{path}running_var" in known:
                yield f"{path}running_var", f"{path}running_mean"


# groups of ranks ----------------------------------------------------------------------------------


def share_statistics(model: nn.Module, group_size: int, world: World) -> nn.Module:
    """Let groups of so many ranks normalise with the statistics of all their samples."""
    if group_size == 1:
        return model
    if world.size % group_size:
        sizes = [size for size in range(1, world.size + 1) if world.size % size == 0]
        raise RampupError(
            f"batchnorm_group_size={group_size} does not divide {world.size} ranks into groups",
            f"batchnorm_group_size={' or '.join(map(str, sizes))}",
        )
    groups = [
        dist.new_group(list(range(first, first + group_size)))
        for first in range(0, world.size, group_size)
    ]
    group = groups[world.rank // group_size]
    if world.device.type == "cuda":
        shared: nn.Module = nn.SyncBatchNorm.convert_sync_batchnorm(  # type: ignore[no-untyped-call]
            model, group
        )
        return shared
    return convert(model, group)


def convert(model: nn.Module, group: Any) -> nn.Module:
    """Return the model with a GroupBatchNorm in the place of each layer of batch normalisation."""
    if isinstance(model, _BatchNorm) and not isinstance(model, nn.SyncBatchNorm):
        return GroupBatchNorm(model, group)
    for name, child in model.named_children():
        setattr(model, name, convert(child, group))
    return model


class GroupBatchNorm(_BatchNorm):
    """Batch normalisation over the samples of a group of ranks. Its parameters and buffers are those
    of the layer that it replaces, by the same names."""

    def __init__(self, layer: _BatchNorm, group: Any) -> None:
        super().__init__(
            layer.num_features,
            layer.eps,
            layer.momentum,
            layer.affine,
            layer.track_running_stats,
        )
        self.weight, self.bias = layer.weight, layer.bias
        self.running_mean, self.running_var = layer.running_mean, layer.running_var
        self.num_batches_tracked = layer.num_batches_tracked
        self.group = group

    def _check_input_dim(self, input: Tensor) -> None:  # noqa: A002
        """Any number of dimensions is fine."""

    def forward(self, features: Tensor) -> Tensor:
        if not self.training:
            return super().forward(features)
        normalised: tuple[Tensor, ...] = Normalise.apply(  # type: ignore[no-untyped-call]
            features, self.eps, self.group
        )
        found, mean, variance, count = normalised
        self._follow(mean, variance * (count / (count - 1).clamp(min=1)))
        if self.weight is None:
            return found
        shape = [1, -1] + [1] * (features.dim() - 2)
        return found * self.weight.view(shape) + self.bias.view(shape)

    @torch.no_grad()
    def _follow(self, mean: Tensor, variance: Tensor) -> None:
        """Move the running statistics towards those of a batch, as torch's own layers do."""
        if self.running_mean is None or self.running_var is None:
            return
        share = self.momentum
        if self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if share is None:  # the mean of all batches
                share = 1 / float(self.num_batches_tracked)
        assert share is not None
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), share)
        self.running_var.lerp_(variance.to(self.running_var.dtype), share)


class Normalise(torch.autograd.Function):
    """Subtract the mean and divide by the deviation of all samples of the group, per channel."""

    @staticmethod
    def forward(context: Any, features: Tensor, eps: float, group: Any) -> tuple[Tensor, ...]:
        places = [place for place in range(features.dim()) if place != 1]
        own_variance, own_mean = torch.var_mean(features, places, unbiased=False)
        count = features.new_full((1,), features.numel() // features.shape[1], dtype=torch.float64)
        own = torch.cat([own_mean.double(), own_variance.double(), count])
        every = [torch.empty_like(own) for _ in range(dist.get_world_size(group))]
        dist.all_gather(every, own, group=group)
        table = torch.stack(every)
        counts, total = table[:, -1:], table[:, -1].sum()
        means, variances = table[:, :-1].chunk(2, 1)
        mean = (means * counts).sum(0) / total
        variance = ((variances + (means - mean).square()) * counts).sum(0) / total
        shape = [1, -1] + [1] * (features.dim() - 2)
        scale = (variance + eps).rsqrt().to(features.dtype).view(shape)
        found = (features - mean.to(features.dtype).view(shape)) * scale
        context.save_for_backward(found, scale, total)
        context.group = group
        context.mark_non_differentiable(mean, variance, total)
        return found, mean, variance, total

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        found, scale, total = context.saved_tensors
        gradient = gradients[0]
        places = [place for place in range(found.dim()) if place != 1]
        sums = torch.cat([gradient.sum(places), (gradient * found).sum(places)]).double()
        dist.all_reduce(sums, group=context.group)
        shape = [1, -1] + [1] * (found.dim() - 2)
        first, second = ((each / total).to(found.dtype).view(shape) for each in sums.chunk(2))
        return (gradient - first - found * second) * scale, None, None
