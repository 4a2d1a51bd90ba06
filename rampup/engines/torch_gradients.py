"""How the gradients of the ranks become one: nothing to do alone, one flat buffer on gloo, DDP on nccl.

Each way takes the mean loss of a piece of the global batch with the piece's share of it, and adds up, so that any
number of ranks takes the same step. `reduce` returns the mean loss of the whole global batch.
"""

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler

from rampup.engines.torch_world import World
from rampup.errors import RampupError


class Alone:
    """One rank: what a plain loop does."""

    def __init__(self, model: nn.Module, scaler: GradScaler) -> None:
        self.model: nn.Module = model
        """What the task's loss calls."""
        self.parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self._scaler = scaler
        self._loss: Tensor | None = None

    def begin(self, samples: int, pieces: int) -> None:
        """A step over `samples` of all ranks; this rank will add so many pieces."""
        self._loss = None
        for parameter in self.parameters:
            parameter.grad = None

    def add(self, loss: Tensor, share: float) -> None:
        """The mean loss of a piece that is `share` of the global batch."""
        part = loss if share == 1.0 else loss * share
        self._scaler.scale(part).backward()  # type: ignore[no-untyped-call]
        self._loss = part.detach() if self._loss is None else self._loss + part.detach()

    def reduce(self) -> Tensor:
        assert self._loss is not None, "with one rank every step has samples"
        return self._loss


class Flat(Alone):
    """All gradients are views of one buffer, reduced by one all_reduce; the loss rides in its last element.

    The sum does not depend on when each gradient was ready, so it is the same bit for bit in every run. The first
    step tells which parameters the loss reaches; the others keep no gradient, as in a plain loop, so an optimizer
    leaves them alone on any number of ranks.
    """

    def __init__(self, model: nn.Module, scaler: GradScaler, world: World) -> None:
        super().__init__(model, scaler)
        self._world = world
        kinds = {parameter.dtype for parameter in self.parameters}
        if len(kinds) != 1:
            raise RampupError(f"gradients=flat needs parameters of one type, not {len(kinds)}", "gradients=ddp")
        self._kind = kinds.pop()
        self._total = torch.zeros((), dtype=self._kind, device=world.device)
        self._buffer: Tensor | None = None
        self._unreached: list[nn.Parameter] = []

    def begin(self, samples: int, pieces: int) -> None:
        if self._buffer is not None:
            self._buffer.zero_()

    def add(self, loss: Tensor, share: float) -> None:
        part = loss * share
        self._scaler.scale(part).backward()  # type: ignore[no-untyped-call]
        self._total += part.detach()

    def reduce(self) -> Tensor:
        if self._buffer is None:
            self._buffer = self._make_buffer()
        elif any(parameter.grad is not None for parameter in self._unreached):
            raise RampupError("a parameter has a gradient now that had none in the first step", "gradients=ddp")
        self._world.sum(self._buffer)
        return self._total

    def _make_buffer(self) -> Tensor:
        """After the first backward pass: one buffer for every parameter that any rank's loss has reached."""
        reached = torch.tensor([float(parameter.grad is not None) for parameter in self.parameters])
        self._world.sum(reached)
        found = [parameter for parameter, ranks in zip(self.parameters, reached.tolist(), strict=True) if ranks]
        self._unreached = [
            parameter for parameter, ranks in zip(self.parameters, reached.tolist(), strict=True) if not ranks
        ]
        size = sum(parameter.numel() for parameter in found)
        buffer = torch.zeros(size + 1, dtype=self._kind, device=self._world.device)
        begin = 0
        for parameter in found:
            # The fused optimizers walk through memory and need parameter and gradient laid out alike.
            view = buffer.as_strided(parameter.shape, torch.empty_like(parameter).stride(), begin)
            if parameter.grad is not None:
                view.copy_(parameter.grad)
            parameter.grad = view
            begin += parameter.numel()
        buffer[-1] = self._total
        self._total = buffer[-1]
        return buffer


class Ddp(Alone):
    """torch's DistributedDataParallel, which sends gradients while the backward pass still runs."""

    def __init__(self, model: nn.Module, scaler: GradScaler, world: World) -> None:
        ids = [world.device.index] if world.device.type == "cuda" else None
        self._wrapped = nn.parallel.DistributedDataParallel(model, device_ids=ids)
        self._wrapped.broadcast_buffers = False  # they are averaged before validation; the argument's name changes
        super().__init__(self._wrapped, scaler)
        self._bare, self._world = model, world

    def begin(self, samples: int, pieces: int) -> None:
        super().begin(samples, pieces)
        self._total = torch.zeros((), device=self._world.device)
        self._left = pieces
        # A rank that has nothing to add would leave DDP waiting: a batch smaller than the world is reduced by hand.
        self._by_hand = samples < self._world.size
        self.model = self._bare if self._by_hand else self._wrapped
        self._wrapped.require_backward_grad_sync = self._left == 1

    def add(self, loss: Tensor, share: float) -> None:
        self._total += loss.detach() * share
        part = loss * (share if self._by_hand else share * self._world.size)  # DDP divides by the number of ranks
        self._scaler.scale(part).backward()  # type: ignore[no-untyped-call]
        self._left -= 1
        self._wrapped.require_backward_grad_sync = self._left == 1

    def reduce(self) -> Tensor:
        for parameter in self.parameters if self._by_hand else ():
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            dist.all_reduce(parameter.grad)
        return self._world.sum(self._total)


def gradients_of(way: str, model: nn.Module, scaler: GradScaler, world: World) -> Alone:
    """For `gradients=auto|flat|ddp`."""
    if world.size == 1:
        return Alone(model, scaler)
    if way == "auto":
        way = "ddp" if world.backend == "nccl" else "flat"
    return Ddp(model, scaler, world) if way == "ddp" else Flat(model, scaler, world)
