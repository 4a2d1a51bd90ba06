"""The ranks of a run as one group of torch.distributed: joined, checked, and left cleanly.

The engines of torch and Lightning use it for everything that crosses ranks but the gradients. With
one rank there is no group and every method does nothing, so the engines need no `if`.
"""

import os
import socket
import time
from collections.abc import Iterable
from datetime import timedelta
from types import TracebackType
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.rendezvous import rendezvous

from rampup.engines import parts
from rampup.errors import RampupError
from rampup.runtime.context import RankContext

MPI = "mpi"
JOIN_LIMIT = timedelta(seconds=60)
COLLECTIVE_LIMIT = timedelta(minutes=30)
"""How long the others wait while one rank saves or evaluates. The death of a rank is noticed at
once, without it."""
KNOCK_LIMIT = timedelta(seconds=30)
LOOPBACK = "127.0.0.1"
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.01, 0.25
NO_MPI = (
    "backend=mpi: this torch was built without MPI",
    "backend=gloo, or a torch that was built with MPI, such as a site's own module",
)
LOST_PEER_SIGNS = ("gloo", "nccl", "connection closed", "connection reset", "broken pipe")


class World:
    def __init__(self, context: RankContext, device: torch.device, backend: str = "auto") -> None:
        self.rank, self.size = context.rank, context.world_size
        self.device = device
        self.backend = choose_backend(backend if self.size > 1 else "auto", device)

    def __enter__(self) -> "World":
        if self.size > 1:
            self._join()
            self._check()
        return self

    def __exit__(
        self, kind: type | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.size == 1:
            return
        if error is None:
            dist.destroy_process_group()
        elif isinstance(error, RuntimeError) and parts.mentions(error, LOST_PEER_SIGNS):
            raise parts.lost_peer(self.rank) from error

    def all_reduce(self, tensor: Tensor) -> Tensor:
        """Sum a tensor over all ranks, in place."""
        if self.size > 1:
            dist.all_reduce(tensor)
        return tensor

    def broadcast(self, tensors: Iterable[Tensor]) -> None:
        """Give every rank the values of rank 0."""
        for tensor in tensors if self.size > 1 else ():
            dist.broadcast(tensor.detach(), 0)

    def average(self, tensors: Iterable[Tensor]) -> None:
        """Replace each tensor by its mean over all ranks."""
        for tensor in tensors if self.size > 1 else ():
            dist.all_reduce(tensor)
            tensor /= self.size

    def agree(self, number: int) -> int:
        """Return the number of rank 0 on every rank."""
        agreed = torch.tensor([number], dtype=torch.int64, device=self.device)
        self.broadcast([agreed])
        return int(agreed)

    def gather(self, tensor: Tensor) -> list[Tensor]:
        """Return the tensors of all ranks in their order on rank 0, and nothing on the others.

        All tensors must have the same size.
        """
        if self.size == 1:
            return [tensor]
        gathered = [torch.empty_like(tensor) for _ in range(self.size)] if self.rank == 0 else []
        dist.gather(tensor, gathered or None, dst=0)
        return gathered

    def wait(self) -> None:
        """Return when all ranks have called it."""
        self.all_reduce(torch.zeros(1, device=self.device))

    def _join(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)
        if self.backend == MPI:
            dist.init_process_group(MPI)  # it brings its own ranks, which _check compares with ours
            return
        try:
            left = JOIN_LIMIT - (knock() if self.rank else timedelta())
            store, rank, size = self._open_store(left)
            dist.init_process_group(
                self.backend, store=store, rank=rank, world_size=size, timeout=COLLECTIVE_LIMIT
            )
        except (RuntimeError, ValueError, OSError) as error:  # DistStoreError is a RuntimeError
            hint = "every rank must reach MASTER_ADDR:MASTER_PORT of rank 0 and start within 60 s"
            raise parts.cannot_join(self.rank, self.size, error, hint) from error

    def _open_store(self, limit: timedelta) -> tuple[Any, int, int]:
        """Return the store of all ranks. torch opens it to the whole network; where all ranks are
        on this node, rank 0 listens on loopback alone."""
        address, port = os.environ.get("MASTER_ADDR", ""), os.environ.get("MASTER_PORT", "0")
        of_an_agent = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
        if self.rank or address != LOOPBACK or of_an_agent:
            found: tuple[Any, int, int] = next(rendezvous("env://", timeout=limit))
            return found
        listener = socket.create_server((address, int(port)), backlog=max(128, self.size))
        store = dist.TCPStore(  # type: ignore[attr-defined]
            address,
            int(port),
            self.size,
            True,
            limit,
            multi_tenant=True,
            master_listen_fd=listener.detach(),
        )
        return store, self.rank, self.size

    def _check(self) -> None:
        if dist.get_rank() != self.rank:  # what MPI says counts for it alone
            raise RampupError(
                f"rank {self.rank} is rank {dist.get_rank()} of MPI",
                "start the ranks with --launcher pmix or mpirun",
            )
        numbers = torch.tensor([float(self.rank), 1.0], device=self.device)
        sums = self.all_reduce(numbers).tolist()
        parts.check_world(sums, self.size, "RANK must be 0 to WORLD_SIZE - 1, each once")


def choose_backend(wish: str, device: torch.device) -> str:
    """Return the backend for `backend=auto|gloo|nccl|mpi`, or refuse one that can't work here."""
    if wish == "auto":
        return "nccl" if device.type == "cuda" else "gloo"
    if wish == MPI and not dist.is_mpi_available():
        raise RampupError(*NO_MPI)
    if wish == "nccl" and device.type != "cuda":
        raise RampupError(
            f"backend=nccl moves data of GPUs, but this run computes on {device.type}",
            "backend=auto",
        )
    return wish


def knock(limit: timedelta = KNOCK_LIMIT) -> timedelta:
    """Wait until rank 0 accepts connections, and return how long that took. torch itself reports a
    rank 0 that never does.

    torch lets half a second pass after its first try, where a rank comes a moment before rank 0.
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
