"""The ranks of a run as one group: joined, checked, asked to add up, and left in good order.

The engine's only door to torch.distributed, apart from the gradients. With one rank there is no group and every
method does nothing, so the engine has no `if`.
"""

import os
import socket
import time
from collections.abc import Iterable
from datetime import timedelta
from types import TracebackType

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.rendezvous import rendezvous

from rampup.errors import RampupError
from rampup.runtime.context import RankContext

JOIN_LIMIT = timedelta(seconds=60)
COLLECTIVE_LIMIT = timedelta(minutes=30)
"""Others wait so long while one rank saves or evaluates; a rank that dies is noticed at once, without it."""
KNOCK_LIMIT = timedelta(seconds=30)
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.01, 0.25
SIGNS_OF_A_LOST_PEER = ("gloo", "nccl", "connection closed", "connection reset", "broken pipe")


class World:
    def __init__(self, context: RankContext, device: torch.device) -> None:
        self.rank, self.size = context.rank, context.world_size
        self.device = device
        self.backend = "nccl" if device.type == "cuda" else "gloo"

    def __enter__(self) -> "World":
        if self.size > 1:
            self._join()
            self._check()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self.size == 1:
            return
        if error is None:
            dist.destroy_process_group()
        elif isinstance(error, RuntimeError) and any(sign in str(error).lower() for sign in SIGNS_OF_A_LOST_PEER):
            raise RampupError(
                f"rank {self.rank} lost contact with another rank", "the rank that failed first tells the cause"
            ) from error

    def sum(self, tensor: Tensor) -> Tensor:
        """The same on every rank afterwards, in place."""
        if self.size > 1:
            dist.all_reduce(tensor)
        return tensor

    def copy_from_first(self, tensors: Iterable[Tensor]) -> None:
        for tensor in tensors if self.size > 1 else ():
            dist.broadcast(tensor.detach(), 0)

    def average(self, tensors: Iterable[Tensor]) -> None:
        for tensor in tensors if self.size > 1 else ():
            dist.all_reduce(tensor)
            tensor /= self.size

    def agree(self, number: int) -> int:
        """What rank 0 says, on every rank."""
        said = torch.tensor([number], dtype=torch.int64, device=self.device)
        self.copy_from_first([said])
        return int(said)

    def gather(self, tensor: Tensor) -> list[Tensor]:
        """What every rank has, in the order of the ranks; on rank 0 alone. All must be of one size."""
        if self.size == 1:
            return [tensor]
        parts = [torch.empty_like(tensor) for _ in range(self.size)] if self.rank == 0 else []
        dist.gather(tensor, parts or None, dst=0)
        return parts

    def wait(self) -> None:
        """Until all ranks are here."""
        self.sum(torch.zeros(1, device=self.device))

    def _join(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)
        try:
            left = JOIN_LIMIT - (knock() if self.rank else timedelta())
            store, rank, size = next(rendezvous("env://", timeout=left))
            dist.init_process_group(self.backend, store=store, rank=rank, world_size=size, timeout=COLLECTIVE_LIMIT)
        except (RuntimeError, ValueError) as error:  # DistStoreError is a RuntimeError
            raise RampupError(
                f"rank {self.rank} of {self.size} can't join the others: {str(error).splitlines()[0]}",
                "every rank must reach MASTER_ADDR:MASTER_PORT of rank 0 and start within 60 s",
            ) from error

    def _check(self) -> None:
        """A rank that trains alone, or twice, would go unseen for hours."""
        found = self.sum(torch.tensor([float(self.rank), 1.0], device=self.device)).tolist()
        if found != [self.size * (self.size - 1) / 2, self.size]:
            raise RampupError(
                f"the ranks do not form one world of {self.size}: their numbers add up to {found[0]:.0f}",
                "RANK must be 0 to WORLD_SIZE - 1, each once",
            )


def knock(limit: timedelta = KNOCK_LIMIT) -> timedelta:
    """Wait until rank 0 listens, and tell how long that took; whoever waits in vain learns it from torch.

    torch itself lets half a second pass after its first try, where a rank comes a moment before rank 0.
    """
    place = os.environ.get("MASTER_ADDR", ""), int(os.environ.get("MASTER_PORT", 0))
    begun, pause = time.monotonic(), FIRST_PAUSE_S
    while (waited := timedelta(seconds=time.monotonic() - begun)) < limit:
        try:
            socket.create_connection(place, timeout=5).close()
        except OSError:
            time.sleep(pause)
            pause = min(1.5 * pause, LONGEST_PAUSE_S)
        else:
            break
    return waited
