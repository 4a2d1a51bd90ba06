"""How the gradients of the ranks become one: nothing to do alone, one flat buffer on gloo, DDP on
nccl.

Each way takes the mean loss of a piece of the global batch with the piece's share of it, and adds
up, so that any number of ranks takes the same step. `reduce` returns the mean loss of the whole
global batch, and tells every rank what any rank wished in that step: to stop, or to save a
checkpoint.
"""

from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler

from rampup.engines.torch.world import World
from rampup.errors import RampupError

AGREE_EVERY = 10
"""Steps between two looks at the wishes on a GPU, where a look waits for the steps before."""
CHUNK_BYTES = 4 * 2**20
"""What is worth sending by itself: below it the time of a message counts for more than its size."""


class Alone:
    """One rank: what a plain loop does."""

    def __init__(self, model: nn.Module, scaler: GradScaler) -> None:
        self.model: nn.Module = model
        """What the task's loss calls."""
        self.wish_stop = self.wish_save = False
        """Set by the loop before `reduce`, on its own rank, and left on until it is agreed."""
        self.stop_agreed = self.save_agreed = False
        """After `reduce`, and the same on every rank: whether any rank has wished it."""
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
        self.stop_agreed, self.save_agreed = self.wish_stop, self.wish_save
        return self._loss


class Together(Alone):
    """Several ranks: three numbers are summed with the gradients, the loss and how many wish to
    stop or to save."""

    def __init__(
        self, model: nn.Module, scaler: GradScaler, world: World, kind: torch.dtype
    ) -> None:
        super().__init__(model, scaler)
        self._world = world
        self._look_every = 1 if world.device.type == "cpu" else AGREE_EVERY
        self._steps = 0
        self._keep(torch.zeros(3, dtype=kind, device=world.device))

    def _keep(self, told: Tensor) -> None:
        """Where the three numbers are from now on."""
        self._told = told
        self._total, self._wishes = told[0], told[1:]

    def _tell(self) -> None:
        if self.wish_stop or self.wish_save:
            self._wishes.copy_(torch.tensor([float(self.wish_stop), float(self.wish_save)]))

    def _hear(self) -> None:
        self._steps += 1
        look = self._steps % self._look_every == 0
        self.stop_agreed, self.save_agreed = (
            (ranks > 0 for ranks in self._wishes.tolist()) if look else (False, False)
        )


class Flat(Together):
    """All gradients are views of one buffer; the loss and the wishes ride at its end.

    The buffer is cut into chunks, each sent as soon as its gradients are there, while the backward
    pass goes on. Where they are cut follows from the sizes of the parameters, and every rank sends
    them in the same order, so the sums are the same bit for bit in every run. The first step tells
    which parameters the loss reaches; the others keep no gradient, as in a plain loop, so an
    optimizer leaves them alone on any number of ranks.
    """

    def __init__(self, model: nn.Module, scaler: GradScaler, world: World) -> None:
        kinds = {parameter.dtype for parameter in model.parameters() if parameter.requires_grad}
        if len(kinds) != 1:
            raise RampupError(
                f"gradients=flat needs parameters of one type, not {len(kinds)}", "gradients=ddp"
            )
        self._kind = kinds.pop()
        super().__init__(model, scaler, world, self._kind)
        self._buffer: Tensor | None = None
        self._unreached: list[nn.Parameter] = []
        self._chunks: list[Tensor] = []
        self._sizes: list[int] = []
        """How many parameters each chunk has, but for the last one: it has the loss too and is sent
        at the end."""

    def begin(self, samples: int, pieces: int) -> None:
        self._left, self._missing = pieces, self._sizes.copy()
        self._sent: list[dist.Work] = []
        if self._buffer is not None:
            self._buffer.zero_()

    def add(self, loss: Tensor, share: float) -> None:
        self._left -= 1
        part = loss * share
        self._total += part.detach()
        self._scaler.scale(part).backward()  # type: ignore[no-untyped-call]

    def reduce(self) -> Tensor:
        if self._buffer is None:
            self._buffer = self._make_buffer()
        elif any(parameter.grad is not None for parameter in self._unreached):
            raise RampupError(
                "a parameter has a gradient now that had none in the first step", "gradients=ddp"
            )
        self._tell()
        while len(self._sent) < len(self._chunks):
            self._send_next()
        for work in self._sent:
            work.wait()
        self._hear()
        return self._total

    def _send_next(self) -> None:
        work = dist.all_reduce(self._chunks[len(self._sent)], async_op=True)
        assert work is not None, "this rank is in the group"
        self._sent.append(work)

    def _arrived(self, chunk: int, parameter: Tensor) -> None:
        """In the backward pass: this gradient is there, and what is complete now is sent."""
        if self._left:  # another piece of this step will add to it
            return
        if chunk < len(self._sent):
            raise RampupError(
                "a parameter got its gradient in two parts, the second after the first was sent",
                "torch.utils.checkpoint needs use_reentrant=False",
            )
        self._missing[chunk] -= 1
        while len(self._sent) < len(self._missing) and self._missing[len(self._sent)] == 0:
            self._send_next()

    def _make_buffer(self) -> Tensor:
        """After the first backward pass: one buffer for every parameter that any rank's loss has
        reached.

        The backward pass comes from the loss to the data, so the last parameters are the first ones
        in the buffer.
        """
        reached = torch.tensor([float(parameter.grad is not None) for parameter in self.parameters])
        reached = reached.to(self._world.device)
        ranks = dict(zip(self.parameters, self._world.sum(reached).tolist(), strict=True))
        found = [parameter for parameter in reversed(self.parameters) if ranks[parameter]]
        self._unreached = [parameter for parameter in self.parameters if not ranks[parameter]]
        size = sum(parameter.numel() for parameter in found)
        buffer = torch.zeros(size + len(self._told), dtype=self._kind, device=self._world.device)
        begin = 0
        for parameter in found:
            # The fused optimizers walk through memory and need parameter and gradient laid out
            # alike.
            view = buffer.as_strided(parameter.shape, torch.empty_like(parameter).stride(), begin)
            if parameter.grad is not None:
                view += parameter.grad  # not a copy: a sum, as in every later step, has no -0.0
            parameter.grad = view
            begin += parameter.numel()
        buffer[begin:] = self._told
        self._keep(buffer[begin:])
        self._cut(buffer, found)
        return buffer

    def _cut(self, buffer: Tensor, found: list[nn.Parameter]) -> None:
        begin = end = 0
        members: list[nn.Parameter] = []
        for parameter in found[:-1]:
            members.append(parameter)
            end += parameter.numel()
            if (end - begin) * buffer.itemsize >= CHUNK_BYTES:
                arrived = partial(self._arrived, len(self._chunks))
                for member in members:
                    member.register_post_accumulate_grad_hook(arrived)  # type: ignore[no-untyped-call]
                self._chunks.append(buffer[begin:end])
                self._sizes.append(len(members))
                begin, members = end, []
        self._chunks.append(buffer[begin:])


class Ddp(Together):
    """torch's DistributedDataParallel, which sends gradients while the backward pass still runs."""

    def __init__(self, model: nn.Module, scaler: GradScaler, world: World) -> None:
        ids = [world.device.index] if world.device.type == "cuda" else None
        self._wrapped = nn.parallel.DistributedDataParallel(model, device_ids=ids)
        # they are averaged before validation; the argument's name changes
        self._wrapped.broadcast_buffers = False
        super().__init__(self._wrapped, scaler, world, torch.float32)
        self._bare = model

    def begin(self, samples: int, pieces: int) -> None:
        super().begin(samples, pieces)
        self._keep(torch.zeros_like(self._told))  # the loop may still hold the last loss
        self._left = pieces
        # A rank that has nothing to add would leave DDP waiting: a batch smaller than the world is
        # reduced by hand.
        self._by_hand = samples < self._world.size
        self.model = self._bare if self._by_hand else self._wrapped
        self._wrapped.require_backward_grad_sync = self._left == 1

    def add(self, loss: Tensor, share: float) -> None:
        self._total += loss.detach() * share
        # DDP divides by the number of ranks
        part = loss * (share if self._by_hand else share * self._world.size)
        self._scaler.scale(part).backward()  # type: ignore[no-untyped-call]
        self._left -= 1
        self._wrapped.require_backward_grad_sync = self._left == 1

    def reduce(self) -> Tensor:
        for parameter in self.parameters if self._by_hand else ():
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            dist.all_reduce(parameter.grad)
        self._tell()
        self._world.sum(self._told)
        self._hear()
        return self._total


def gradients_of(way: str, model: nn.Module, scaler: GradScaler, world: World) -> Alone:
    """For `gradients=auto|flat|ddp`."""
    if world.size == 1:
        return Alone(model, scaler)
    if way == "auto":
        way = "ddp" if world.backend == "nccl" else "flat"
    return Ddp(model, scaler, world) if way == "ddp" else Flat(model, scaler, world)
