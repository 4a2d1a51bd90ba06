"""What a checkpoint of 100 MB costs the training loop, against a plain torch.save and fsync in its
place.

The loop stands still while it saves, and in its steps while another thread holds the interpreter:
the steps are those of a small network, most of whose time is Python's own. Waiting for a CPU that
somebody else uses is left out on both sides: where all CPUs compute, writing takes its share of
them, and a run shows that in the cost of its checkpoints.
"""

import os
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.measure import Line

REPEATS = 15
STEPS = 300
"""They take longer than the writing."""


class Clock:
    """Time of this thread, without what it spent waiting for a free CPU; and how much of it was
    spent computing."""

    def __init__(self) -> None:
        with open(f"/proc/self/task/{threading.get_native_id()}/schedstat") as file:
            busy, queued, _ = file.read().split()
        self.computed_s = int(busy) / 1e9
        self.s = time.perf_counter() - int(queued) / 1e9


class Loop:
    """A training loop beside a model whose state, with Adam's, is 100 MB."""

    def __init__(self, folder: Path) -> None:
        import torch
        from torch import nn
        from torch.amp.grad_scaler import GradScaler

        from rampup.core.spec import Every
        from rampup.engines.torch.parts import RunningLoss
        from rampup.engines.torch.state import State
        from rampup.engines.torch.world import World
        from rampup.rundir.files import RunDir
        from rampup.runtime.checkpoints.cadence import Cadence
        from rampup.runtime.checkpoints.saving import Saving
        from rampup.runtime.checkpoints.store import CheckpointStore
        from rampup.runtime.context import RankContext
        from rampup.runtime.telemetry.metrics import NoEvents

        torch.set_num_threads(1)
        self.torch, self.file = torch, folder / "plain.pt"
        self.model = nn.Sequential(nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 2048))
        self.optimizer = torch.optim.Adam(self.model.parameters(), fused=True)
        self.model(torch.randn(4, 2048)).sum().backward()
        self.optimizer.step()
        self.small = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
        self.small_optimizer = torch.optim.Adam(self.small.parameters(), fused=True)
        self.batch = torch.randn(20, 784)
        cpu, run = torch.device("cpu"), RunDir(folder / "run")
        run.attempt(1).path.mkdir(parents=True)
        self.saving = Saving(
            CheckpointStore(run, 1), Cadence(Every("steps", 1)), 2, NoEvents(), lambda: None
        )
        scaler, world = GradScaler("cpu", enabled=False), World(RankContext(), cpu)
        self.state = State(self.model, self.optimizer, scaler, RunningLoss(cpu), world, seed=1)
        self.saves = 0

    def steps(self) -> float:
        """How long it stood still."""
        began = Clock()
        for _ in range(STEPS):
            self.small_optimizer.zero_grad()
            self.small(self.batch).square().mean().backward()
            self.small_optimizer.step()
        ended = Clock()
        return max(0.0, ended.s - began.s - (ended.computed_s - began.computed_s))

    def ours(self) -> None:
        self.saves += 1
        with self.saving.count_stall():
            self.saving.wait_until_ready()
            snapshot = self.state.take(self.saves, None, {})
        self.saving.write(snapshot, None)

    def plain(self) -> None:
        state: dict[str, Any] = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
        }
        with open(self.file, "wb") as file:
            self.torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())

    def stall_s(self) -> tuple[float, float]:
        """By our checkpoint, and by the plain one."""
        before, began = self.steps(), Clock()
        self.ours()
        saving_s = Clock().s - began.s
        ours = saving_s + max(0.0, self.steps() - before)
        self.saving.finish()
        began = Clock()
        self.plain()
        return ours, Clock().s - began.s


def lines() -> Iterator[Line]:
    with tempfile.TemporaryDirectory() as folder:
        loop = Loop(Path(folder))
        loop.steps(), loop.stall_s()
        pairs = [loop.stall_s() for _ in range(REPEATS)]
    ours, theirs = (statistics.median(side) for side in zip(*pairs, strict=True))
    ratios = sorted(mine / other for mine, other in pairs)
    spread = f"{ratios[0]:.2f}-{ratios[-1]:.2f}"
    yield Line(
        "stall, 100 MB / torch.save + fsync",
        ours,
        theirs,
        ours / theirs,
        spread,
        "<= 0.25x",
        ours / theirs <= 0.25,
    )
