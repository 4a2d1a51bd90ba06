"""The torch engine: a lean loop over a Task in plain PyTorch. The worker calls `train` on every
rank.

Every global batch holds the same samples on any number of ranks, gradients are summed, validation
counts each sample once. The learning rate and the order of the data follow from the step alone, so
a later attempt goes on at any step. It never parses a scheduler's variables and never opens a file:
rows, lines and checkpoints go through the job.
"""

import platform

import numpy as np
import torch
from torch import nn
from torch.amp.grad_scaler import GradScaler

from rampup import __version__
from rampup.core import hardware
from rampup.data.order import permutation, piece
from rampup.engines.base import Loop, check_monitor
from rampup.engines.torch import device as torch_device
from rampup.engines.torch import parts as torch_parts
from rampup.engines.torch.evaluation import Evaluation
from rampup.engines.torch.gradients import Ddp, gradients_of
from rampup.engines.torch.insight import Insight
from rampup.engines.torch.state import State
from rampup.engines.torch.task import Task
from rampup.engines.torch.world import World
from rampup.runtime.job import Job, TrainingResult


def train(job: Job, task: Task) -> TrainingResult:
    """Train to the last epoch, to the target, or until asked to stop. The outcome is the same on
    every rank."""
    settings, context = job.settings, job.context
    if context.threads:
        torch.set_num_threads(context.threads)
    device = torch_device.choose(settings.device, context, job.gpus_per_node)
    torch_device.check_precision(settings.precision, device)
    if device.type == "cpu":
        hardware.disable_malloc_trim()
    with World(context, device) as world:
        return Training(job, task, world).run()


class Training(Loop):
    """One rank's side of a run: parts built from the settings, and the step that turns them."""

    def __init__(self, job: Job, task: Task, world: World) -> None:
        settings, phases = job.settings, job.phases
        phases.mark("start")
        self.data, validation = torch_parts.build_data(task)
        phases.mark("data")
        super().__init__(job, world, len(self.data))
        self.world: World = world
        self.task = task
        self.model = torch_parts.build_model(task, world)
        self.optimizer = task.optimizer(self.model)
        self.base_rates = [float(group["lr"]) for group in self.optimizer.param_groups]
        self.scaler = GradScaler(world.device.type, enabled=settings.precision == "fp16")
        called = torch_parts.compiled(self.model, settings)
        self.gradients = gradients_of(settings.gradients, called, self.scaler, world)
        self.autocast = torch_device.autocast(settings.precision, world.device)
        self.loss: torch_parts.RunningLoss = torch_parts.RunningLoss(world.device)
        self.facts = self._facts()
        self.state = State(self.model, self.optimizer, self.scaler, self.loss, world, settings.seed)
        phases.mark("start")
        self.evaluation = Evaluation(task, called, validation, world, self.autocast)
        phases.mark("evaluation")
        check_monitor(settings.monitor, self.evaluation.metrics)
        self.insight = Insight(job, task, self.model, self.evaluation)
        # Read on every step, so not looked up by name there.
        self.clip: float | None = settings.clip
        self.accumulate: int = settings.accumulate
        self.moves: bool = settings.channels_last or world.device.type != "cpu"

    # the parts of the loop ------------------------------------------------------------------------

    def begin(self) -> None:
        self.insight.begin()

    def begin_epoch(self, epoch: int) -> None:
        self.order = torch.from_numpy(permutation(self.settings.seed, epoch, self.samples))
        self.job.phases.mark("data")

    def take_step(self, epoch: int, low: int, high: int) -> None:
        samples, gradients, mark = high - low, self.gradients, self.job.phases.mark
        pieces = self._pieces(low, high)
        gradients.begin(samples, len(pieces))
        for begin, end in pieces:
            mark("compute")
            batch = self.data.batch(self.order[begin:end])
            if self.moves:
                batch = torch_device.move(batch, self.world.device, self.settings.channels_last)
            batch = self.task.augment(batch, epoch)
            mark("data")
            with self.autocast:
                loss = self.task.loss(gradients.model, batch)
            gradients.add(loss, (end - begin) / samples)
        gradients.wish_stop, gradients.wish_save = (
            bool(self.job.stop.reason),
            self.job.saving.wants_checkpoint(),
        )
        mark("compute")
        loss = gradients.reduce()
        mark("communication")
        self._update()
        self.stop_agreed, self.save_agreed = gradients.stop_agreed, gradients.save_agreed
        self.loss.add(loss, samples)
        mark("compute")

    def evaluate(self) -> dict[str, float]:
        return self.evaluation.run()

    def validated(self, epoch: int, row: dict[str, float]) -> None:
        super().validated(epoch, self.evaluation.brief(row))
        self.insight.validated(self.step, epoch)
        self.job.phases.mark("evaluation")

    def end(self) -> None:
        self.insight.show()
        self.job.phases.mark("evaluation")

    def rate(self) -> float:
        return float(self.optimizer.param_groups[0]["lr"])

    def inexact(self) -> list[str]:
        if self.world.device.type != "cpu":
            return ["sums on a GPU come in any order"]
        ddp = self.world.size > 2 and isinstance(self.gradients, Ddp)
        return ["gradients=ddp sums in another order after it starts"] if ddp else []

    def _pieces(self, low: int, high: int) -> list[tuple[int, int]]:
        """This rank's part of a global batch, cut for accumulation; none when the batch is smaller
        than the world."""
        begin, end = piece(low, high, self.world.rank, self.world.size)
        parts = min(self.accumulate, end - begin)
        return [piece(begin, end, part, parts) for part in range(parts)]

    def _update(self) -> None:
        factor = self.schedule.factor(self.step)
        for group, rate in zip(self.optimizer.param_groups, self.base_rates, strict=True):
            group["lr"] = rate * factor
        if self.clip is not None:
            self.scaler.unscale_(self.optimizer)
            nn.utils.clip_grad_norm_(self.gradients.parameters, self.clip)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.step += 1

    def _facts(self) -> dict[str, object]:
        return {
            "world_size": self.world.size,
            "threads": torch.get_num_threads(),
            "device": str(self.world.device),
            "gradients": type(self.gradients).__name__.lower(),
            "cpu": hardware.cpu_model(),
            "versions": {
                "rampup": __version__,
                "torch": str(torch.__version__),
                "numpy": np.__version__,
                "python": platform.python_version(),
            },
        }
