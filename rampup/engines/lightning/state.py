"""The complete state of a training with Lightning: its own checkpoint, and what it leaves out.

Lightning keeps the module, optimizers, schedulers, callbacks and counters. Added here are the
random numbers of every rank, its buffers (the statistics of batch normalisation), where its loaders
stand, and the running mean of its loss. Written to memory at once, so that the training goes on
while a thread brings it to the disk.
"""

import io
from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
from lightning.pytorch import Trainer
from torch import Tensor

from rampup.engines.lightning.data import Positions
from rampup.engines.lightning.plugins import TakeOver
from rampup.engines.lightning.rows import Rows
from rampup.engines.torch.state import packed, put_back_buffers, random_state, set_random_state
from rampup.engines.torch.world import World
from rampup.runtime.checkpoints.saving import Snapshot

FILE = "state.ckpt"
OWN = "rampup"
"""Our part of Lightning's checkpoint."""


class State:
    def __init__(self, trainer: Trainer, world: World, positions: Positions, rows: Rows) -> None:
        self._trainer, self._world, self._positions, self._rows = trainer, world, positions, rows
        self._random: Any = None
        self._buffers: list[Tensor] = []
        """Of every rank that there was."""

    def take(self, step: int, meta: Mapping[str, Any]) -> Snapshot:
        """All ranks call it between two steps; only the first gets something to write."""
        ranks, kept = self._gather(), io.BytesIO()

        def keep(checkpoint: dict[str, Any]) -> None:
            torch.save({**checkpoint, OWN: {"ranks": ranks}}, kept)

        self._trainer.save_checkpoint(FILE, weights_only=False, storage_options=TakeOver(keep))
        data = kept.getbuffer()
        return Snapshot(step, {FILE: lambda file: file.write(data)}, meta)

    def loaded(self, checkpoint: Mapping[str, Any]) -> None:
        """What Lightning does not put back by itself. With another number of ranks there is no
        state for each."""
        ranks = checkpoint.get(OWN, {}).get("ranks", [])
        self._buffers = [part["buffers"] for part in ranks if "buffers" in part]
        if len(ranks) != self._world.size:
            return
        own = ranks[self._world.rank]
        self._positions.put_back(own["loaders"])
        self._rows.put_back(own["rows"])
        self._random = own["random"]

    def put_back_own(self) -> None:
        """Last of all before the first step: DDP has sent those of the first rank to all, and
        setting up draws."""
        if self._buffers:
            put_back_buffers(
                self._buffers, list(self._trainer.lightning_module.buffers()), self._world
            )
            self._buffers = []
        if self._random is not None:
            set_random_state(self._random, self._world.device)
            self._random = None

    def _gather(self) -> list[Any]:
        own = {
            "random": random_state(self._world.device),
            "loaders": self._positions.state(),
            "rows": self._rows.state(),
        }
        if self._world.size == 1:
            return [own]
        own["buffers"] = packed(self._trainer.lightning_module.buffers())
        parts: list[Any] = [None] * self._world.size
        dist.gather_object(own, parts if self._world.rank == 0 else None, dst=0)
        return parts
