"""Layers of torch that normalise over the batch, and how batches are cut for a model with one.

The engines of torch and Lightning call `build_cut` once, before the first step. Whether a layer can
normalise over one sample depends on what reaches it: BatchNorm2d has as many values of a channel as
there are positions, and after a global pooling that is one. So two samples are sent through the
loss, only where a piece of one would come, and everything is put back after that.
"""

import copy
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from rampup.engines.pieces import Cut, avoid_lone_samples, require_equal_pieces
from rampup.engines.torch import device as torch_device
from rampup.engines.torch.batch_statistics import GroupBatchNorm
from rampup.engines.torch.state import preserve
from rampup.engines.torch.task import Data, Task
from rampup.engines.torch.world import World

TRIED = 2
"""The number of samples that are sent through the loss."""


def build_cut(
    task: Task, model: nn.Module, data: Data, world: World, autocast: torch.autocast
) -> Cut:
    """Return how the batches of a run are cut, or refuse batches that the model can't train on."""

    def find_layer() -> str:
        layers = find_normalising(model, world.size)
        return try_two_samples(task, model, data, layers, autocast, world) if layers else ""

    settings = task.settings
    cut = Cut(world.size, settings.accumulate)
    if shares_statistics(model.modules()):
        require_equal_pieces(cut, len(data), settings)
    return avoid_lone_samples(cut, len(data), settings, find_layer)


def shares_statistics(modules: Iterable[nn.Module]) -> bool:
    """Return whether a layer normalises over several ranks, which then wait for each other."""
    return any(isinstance(each, nn.SyncBatchNorm | GroupBatchNorm) for each in modules)


def find_normalising(model: nn.Module, ranks: int) -> dict[str, _BatchNorm]:
    """Return the layers, by name, that normalise over a rank's own piece in training.

    A layer that is kept in eval mode uses its running statistics. SyncBatchNorm normalises over all
    ranks, and each of them must have a part in every batch: none may be left out.
    """
    modules = dict(model.named_modules())
    if ranks > 1 and shares_statistics(modules.values()):
        return {}
    return {
        name: module
        for name, module in modules.items()
        if isinstance(module, _BatchNorm) and (module.training or module.running_mean is None)
    }


def describe(name: str, layer: nn.Module) -> str:
    """Return how messages name a layer."""
    return f"{f'layer {name}' if name else 'the model'} ({type(layer).__name__})"


def try_two_samples(
    task: Task,
    model: nn.Module,
    data: Data,
    layers: dict[str, _BatchNorm],
    autocast: torch.autocast,
    world: World,
) -> str:
    """Return the first layer that gets one value of each channel from one sample, or nothing."""
    found: list[str] = []

    def watch(name: str, layer: nn.Module) -> Any:
        def look(module: nn.Module, arguments: Any, named: dict[str, Any]) -> None:
            given = arguments[0] if arguments else named["input"]
            if given.numel() // given.shape[1] <= TRIED:
                found.append(describe(name, layer))

        return layer.register_forward_pre_hook(look, with_kwargs=True)

    settings = task.settings
    with preserve(model, world.device), torch.no_grad(), autocast:
        hooks = [watch(name, layer) for name, layer in layers.items()]
        batch = data.batch(torch.arange(TRIED) % len(data))
        batch = torch_device.move(batch, world.device, settings.channels_last)
        tried = copy.copy(task)  # what the loss counts in the task is not counted
        tried.loss(model, tried.augment(batch, 1))
        for hook in hooks:
            hook.remove()
    return found[0] if found else ""
