"""The complete state of a training with torch: taken between two steps, restored on a resume.

Model, optimizer, scaler and running sums are the same on every rank and come from the first; random
numbers and buffers (the statistics of batch normalisation) differ, and are gathered from all ranks.
The state is copied into memory that is kept, so that training continues while the copy is written.
The lightning engine uses the same random numbers and buffers. It never writes a file.
"""

import copy
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler

from rampup.engines import parts
from rampup.engines.torch.batch_statistics import combine_buffers
from rampup.engines.torch.parts import RunningLoss, seed_everything
from rampup.engines.torch.world import World
from rampup.runtime.checkpoints.saving import Snapshot
from rampup.runtime.job import Best

FILE = "state.pt"
ALIGNED = 16
"""Each tensor begins at a multiple of this many numbers."""


class State:
    """The state of one rank.

    `seed` is the run's: a rank that can't continue with its own random numbers starts new ones.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        scaler: GradScaler,
        loss: RunningLoss,
        world: World,
        seed: int,
    ) -> None:
        self._model, self._optimizer, self._scaler, self._loss = model, optimizer, scaler, loss
        self._world, self._seed = world, seed
        self._memory, self._memory_of_best = KeptMemory(), KeptMemory()

    def take(
        self, step: int, best: Best | None, facts: dict[str, Any], is_best: bool = False
    ) -> Snapshot:
        """Copy the state. All ranks call it at the same step; only rank 0 gets files to write."""
        ranks = self._gather()
        if not ranks:
            return Snapshot(step, {}, {})
        state = {
            "step": step,
            "best": parts.best_to_record(best),
            "model": self._model.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "scaler": self._scaler.state_dict(),
            "loss": self._loss.state(),
            "ranks": ranks,
        }
        kept = (self._memory_of_best if is_best else self._memory).copy(state)
        meta = {**facts, "best": state["best"]}
        return Snapshot(step, {FILE: lambda file: torch.save(kept, file)}, meta)

    def restore(self, folder: Path) -> tuple[int, Best | None]:
        """Load a state; returns its step and the best until then."""
        try:
            state = torch.load(folder / FILE, map_location="cpu", weights_only=True)
            self._model.load_state_dict(state["model"])
            self._optimizer.load_state_dict(state["optimizer"])
            self._scaler.load_state_dict(state["scaler"])
            self._loss.load(state["loss"])
            self._restore_rank(state["ranks"], state["step"])
        except (RuntimeError, ValueError, KeyError, UnpicklingError) as error:
            raise parts.does_not_fit(folder, error) from error
        return state["step"], parts.best_from_record(state["best"])

    def _gather(self) -> list[dict[str, Tensor]]:
        """Return what differs between ranks, from all of them; only rank 0 gets it."""
        numbers, buffers = random_state(self._world.device), pack(self._model.buffers())
        own = torch.cat([numbers, buffers])
        if self._world.backend == "nccl":
            own = own.to(self._world.device)
        return [
            {"random": each[: len(numbers)].clone(), "buffers": each[len(numbers) :].clone()}
            for each in (part.cpu() for part in self._world.gather(own))
        ]

    def _restore_rank(self, ranks: list[dict[str, Tensor]], step: int) -> None:
        rank = self._world.rank
        buffers = [part["buffers"] for part in ranks]
        restore_buffers(buffers, self._model, self._world)
        if len(ranks) == self._world.size:
            restored = set_random_state(ranks[rank]["random"], self._world.device)
            if restored:
                return
        seed_everything(parts.rank_seed(self._seed, rank) + step)


class KeptMemory:
    """CPU memory for copies of a state: allocating it again would take longer than copying.

    Each part of the state is one block for all its tensors of a type. torch.save writes a block in
    one go, without Python, where hundreds of small tensors would make the training loop wait for
    the interpreter hundreds of times.
    """

    def __init__(self) -> None:
        self._layout: list[tuple[Any, ...]] = []
        self._copies: list[Tensor] = []

    def copy(self, state: dict[str, Any]) -> Any:
        """Return the same dicts and lists, with tensors that the training does not change."""
        found = [(part, tensor) for part, value in state.items() for tensor in _tensors(value)]
        layout = [
            (part, tensor.dtype, tensor.shape, tensor.stride(), tensor.is_cuda)
            for part, tensor in found
        ]
        if layout != self._layout:
            self._layout, self._copies = layout, _blocks(found)
        for kept, (_, tensor) in zip(self._copies, found, strict=True):
            kept.copy_(tensor, non_blocking=True)
        if any(tensor.is_cuda for _, tensor in found):
            torch.cuda.synchronize()
        return _with_tensors(state, iter(self._copies))


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value.detach()
    elif isinstance(value, dict | list | tuple):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _tensors(each)


def _with_tensors(value: Any, tensors: Iterator[Tensor]) -> Any:
    """Return the value with other tensors, in the order in which `_tensors` finds them."""
    if isinstance(value, Tensor):
        return next(tensors)
    if isinstance(value, dict):
        copied = copy.copy(value)  # with what a state_dict has beside its items
        copied.update({key: _with_tensors(each, tensors) for key, each in value.items()})
        return copied
    if isinstance(value, list | tuple):
        return type(value)(_with_tensors(each, tensors) for each in value)
    return value


def _blocks(found: list[tuple[str, Tensor]]) -> list[Tensor]:
    """Allocate each tensor with its own strides, in one block for every part and type."""
    sizes: dict[tuple[str, torch.dtype], int] = {}
    places = []
    for part, tensor in found:
        begin = sizes.get((part, tensor.dtype), 0)
        places.append(begin)
        sizes[part, tensor.dtype] = begin + -(-tensor.numel() // ALIGNED) * ALIGNED
    on_gpu = any(tensor.is_cuda for _, tensor in found)
    # Zeros between the tensors, so that equal states are equal files.
    blocks = {
        key: torch.zeros(size, dtype=key[1], pin_memory=on_gpu) for key, size in sizes.items()
    }
    return [
        blocks[part, tensor.dtype].as_strided(
            tensor.shape, torch.empty_like(tensor).stride(), begin
        )
        for (part, tensor), begin in zip(found, places, strict=True)
    ]


# what differs between ranks, as bytes -------------------------------------------------------------


def pack(tensors: Any) -> Tensor:
    """Return all tensors as one row of bytes on the CPU."""
    rows = [tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8) for tensor in tensors]
    return torch.cat([torch.empty(0, dtype=torch.uint8), *rows])


def unpack(data: Tensor, into: list[Tensor]) -> None:
    """Write what `pack` has returned into tensors of the same shapes."""
    for tensor, found in zip(into, _split(data, into), strict=True):
        tensor.copy_(found)


def restore_buffers(ranks: list[Tensor], model: nn.Module, world: World) -> None:
    """Give each rank its own buffers, or those of all combined if the number of ranks has
    changed."""
    into = list(model.buffers())
    if len(ranks) == world.size:
        unpack(ranks[world.rank], into)
        return
    combined = combine_buffers([_split(data, into) for data in ranks], model)
    for tensor, found in zip(into, combined, strict=True):
        tensor.copy_(found)


def _split(data: Tensor, like: list[Tensor]) -> list[Tensor]:
    sizes = [tensor.numel() * tensor.element_size() for tensor in like]
    if sum(sizes) != len(data):
        raise ValueError(f"its buffers take {len(data)} bytes, those of the model {sum(sizes)}")
    pieces = zip(like, torch.split(data, sizes) if like else (), strict=True)
    return [piece.clone().view(tensor.dtype).reshape(tensor.shape) for tensor, piece in pieces]


def random_state(device: torch.device) -> Tensor:
    """Return the state of every source of random numbers that a training may use, as bytes."""
    keys, words, rest = parts.host_random_state()
    numbers = [keys.astype(np.int64), words.astype(np.int64), rest]
    on_gpu = [torch.cuda.get_rng_state(device)] if device.type == "cuda" else []
    return pack([torch.get_rng_state(), *map(torch.from_numpy, numbers), *on_gpu])


def set_random_state(data: Tensor, device: torch.device) -> bool:
    """Restore a state; returns False for the state of another version of torch, which differs."""
    now = random_state(device)
    if len(now) != len(data):
        return False
    size = torch.get_rng_state().numel()
    like = [
        torch.empty(size, dtype=torch.uint8),
        torch.empty(624, dtype=torch.int64),
        torch.empty(625, dtype=torch.int64),
    ]
    like += [torch.empty(5, dtype=torch.float64)]
    used = sum(tensor.numel() * tensor.element_size() for tensor in like)
    own, keys, words, rest = _split(data[:used], like)
    torch.set_rng_state(own)
    parts.set_host_random_state(keys.numpy(), words.numpy(), rest.numpy())
    if device.type == "cuda":
        torch.cuda.set_rng_state(data[used:].clone(), device)
    return True


COLLECTIONS: tuple[type, ...] = (list, dict, set, deque, OrderedDict, defaultdict, Counter)


@contextmanager
def preserve(model: nn.Module, device: torch.device) -> Iterator[None]:
    """Restore random numbers, buffers and attributes after looking at a model."""
    stood = random_state(device)
    buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
    # A module that torch.jit has compiled has no Python attributes but its mode; its buffers are
    # among the others.
    scripts, modules = [], []
    for module in model.modules():
        if isinstance(module, torch.jit.ScriptModule):
            scripts.append((module, module.training))
        else:
            modules.append((module, dict(vars(module))))
    collections = [
        (value, copy.copy(value))
        for _, own in modules
        for value in own.values()
        if type(value) in COLLECTIONS
    ]
    try:
        yield
    finally:
        for script, was_training in scripts:
            script.training = was_training
        for module, own in modules:
            vars(module).clear()
            vars(module).update(own)
        # the same objects, with what was in them; a module's _buffers are one
        for value, before in collections:
            value.clear()
            (value.extend if isinstance(value, list | deque) else value.update)(before)
        with torch.no_grad():
            for buffer, before in buffers:
                buffer.copy_(before)
        set_random_state(stood, device)
