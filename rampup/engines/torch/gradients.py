"""How the gradients of ranks become one: nothing to do alone, one flat buffer on gloo, DDP on nccl.

Each class takes the mean loss of a piece of the global batch with the piece's share of it and adds
up, so that any number of ranks takes the same step. `reduce` returns the mean loss of the whole
global batch, and gives every rank the votes of all ranks in that step: to stop, or to save a
checkpoint. engine.py drives it; it never touches an optimizer.
"""

from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler

from rampup.engines.parts import AGREE_EVERY
from rampup.engines.torch.world import World
from rampup.errors import RampupError

CHUNK_BYTES = 4 * 2**20
"""The size that is worth a message: below it the latency of a message outweighs its size."""


class LocalGradients:
    """The gradients of one rank: what a plain loop does."""

    name = "alone"
    """How checkpoints and events call this class."""

    def __init__(self, model: nn.Module, scaler: GradScaler) -> None:
        self.model: nn.Module = model
        """The module that the task's loss calls."""
        self.stop_vote = self.save_vote = False
        """This rank's votes, set by the loop before `reduce` and left on until all ranks agree."""
        self.stop_agreed = self.save_agreed = False
        """Whether any rank has voted for it; after `reduce`, the same on every rank."""
        self.parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self._scaler = scaler
        self._loss: Tensor | None = None

    def begin(self, ranks: int, pieces: int) -> None:
        """Begin a step in which so many ranks have a part, and this rank adds so many pieces."""
        self._loss = None
        for parameter in self.parameters:
            parameter.grad = None

    def add(self, loss: Tensor, share: float) -> None:
        """Add the mean loss of a piece that is `share` of the global batch."""
        part = loss if share == 1.0 else loss * share
        self._scaler.scale(part).backward()  # type: ignore[no-untyped-call]
        self._loss = part.detach() if self._loss is None else self._loss + part.detach()

    def reduce(self) -> Tensor:
        assert self._loss is not None, "with one rank every step has samples"
        self.stop_agreed, self.save_agreed = self.stop_vote, self.save_vote
        return self._loss


class ReducedGradients(LocalGradients):
    """The gradients of several ranks.

    Three numbers are summed with them: the loss, and how many ranks vote to stop and to save.
    """

    def __init__(
        self, model: nn.Module, scaler: GradScaler, world: World, kind: torch.dtype
    ) -> None:
        super().__init__(model, scaler)
        self._world = world
        self._read_every = 1 if world.device.type == "cpu" else AGREE_EVERY
        self._steps = 0
        self._place_extras(torch.zeros(3, dtype=kind, device=world.device))

    def _place_extras(self, extras: Tensor) -> None:
        """Keep the three numbers in this tensor from now on."""
        self._extras = extras
        self._total, self._votes = extras[0], extras[1:]

    def _publish_votes(self) -> None:
        if self.stop_vote or self.save_vote:
            self._votes.copy_(torch.tensor([float(self.stop_vote), float(self.save_vote)]))

    def _read_votes(self) -> None:
        self._steps += 1
        self.stop_agreed = self.save_agreed = False
        if self._steps % self._read_every == 0:
            self.stop_agreed, self.save_agreed = (ranks > 0 for ranks in self._votes.tolist())


class FlatGradients(ReducedGradients):
    """Gradients that are views of one buffer, with the loss and the votes at its end.

    The buffer is cut into chunks, each sent as soon as its gradients are there, while the backward
    pass continues. The cuts follow from the sizes of the parameters, and every rank sends the
    chunks in the same order, so the sums are the same bit for bit in every run. The first step
    shows which parameters the loss reaches; the others keep no gradient, as in a plain loop, so an
    optimizer leaves them alone on any number of ranks.
    """

    name = "flat"

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
        """The number of parameters in each chunk but the last, which also has the loss and is sent
        at the end."""

    def begin(self, ranks: int, pieces: int) -> None:
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
        self._publish_votes()
        while len(self._sent) < len(self._chunks):
            self._send_next()
        for work in self._sent:
            work.wait()
        self._read_votes()
        return self._total

    def _send_next(self) -> None:
        work = dist.all_reduce(self._chunks[len(self._sent)], async_op=True)
        assert work is not None, "this rank is in the group"
        self._sent.append(work)

    def _arrived(self, chunk: int, parameter: Tensor) -> None:
        """Send the chunks that are complete with this gradient; called in the backward pass."""
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
        """Build the buffer after the first backward pass, for what the loss of any rank reached.

        The backward pass runs from the loss to the data, so the last parameters come first in the
        buffer.
        """
        reached = torch.tensor([float(parameter.grad is not None) for parameter in self.parameters])
        reached = reached.to(self._world.device)
        ranks = dict(zip(self.parameters, self._world.all_reduce(reached).tolist(), strict=True))
        found = [parameter for parameter in reversed(self.parameters) if ranks[parameter]]
        self._unreached = [parameter for parameter in self.parameters if not ranks[parameter]]
        size = sum(parameter.numel() for parameter in found)
        buffer = torch.zeros(size + len(self._extras), dtype=self._kind, device=self._world.device)
        begin = 0
        for parameter in found:
            # The fused optimizers walk through memory and need parameter and gradient laid out
            # alike.
            view = buffer.as_strided(parameter.shape, torch.empty_like(parameter).stride(), begin)
            if parameter.grad is not None:
                view += parameter.grad  # not a copy: a sum, as in every later step, has no -0.0
            parameter.grad = view
            begin += parameter.numel()
        buffer[begin:] = self._extras
        self._place_extras(buffer[begin:])
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


class DdpGradients(ReducedGradients):
    """torch's DistributedDataParallel, which sends gradients while the backward pass still runs."""

    name = "ddp"

    def __init__(self, model: nn.Module, scaler: GradScaler, world: World) -> None:
        ids = [world.device.index] if world.device.type == "cuda" else None
        self._wrapped = nn.parallel.DistributedDataParallel(model, device_ids=ids)
        # they are averaged before validation; the argument's name changes
        self._wrapped.broadcast_buffers = False
        super().__init__(self._wrapped, scaler, world, torch.float32)
        self._bare = model

    def begin(self, ranks: int, pieces: int) -> None:
        super().begin(ranks, pieces)
        self._place_extras(torch.zeros_like(self._extras))  # the loop may still hold the last loss
        self._left = pieces
        # A rank that has nothing to add would leave DDP waiting: a batch in which it has no part is
        # reduced by hand.
        self._by_hand = ranks < self._world.size
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
        self._publish_votes()
        self._world.all_reduce(self._extras)
        self._read_votes()
        return self._total


def build_gradients(way: str, model: nn.Module, scaler: GradScaler, world: World) -> LocalGradients:
    """Return the gradients for `gradients=auto|flat|ddp`."""
    if world.size == 1:
        return LocalGradients(model, scaler)
    if way == "auto":
        way = "ddp" if world.backend == "nccl" else "flat"
    if way == "ddp":
        return DdpGradients(model, scaler, world)
    return FlatGradients(model, scaler, world)
