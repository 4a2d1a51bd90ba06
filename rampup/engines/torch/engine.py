"""The torch engine: a lean loop over a Task in plain PyTorch.

The worker calls `load_target` and `train` on every rank. Every global batch holds the same samples
on any number of ranks, gradients are summed, and validation counts each sample once. The learning
rate and the order of the data follow from the step alone, so a later attempt can continue at any
step. It never parses a scheduler's variables and never opens a file: rows, lines and checkpoints go
through the job.
"""

import importlib
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.amp.grad_scaler import GradScaler

from rampup.core import hardware
from rampup.core.mlperf import Benchmark
from rampup.core.settings import Settings
from rampup.data.order import permutation
from rampup.engines import parts
from rampup.engines.base import Loop
from rampup.engines.pieces import pieces_to_come
from rampup.engines.torch import device as torch_device
from rampup.engines.torch import parts as torch_parts
from rampup.engines.torch.evaluation import Evaluation
from rampup.engines.torch.gradients import DdpGradients, build_gradients
from rampup.engines.torch.insight import Insight
from rampup.engines.torch.normalisation import build_cut
from rampup.engines.torch.state import State
from rampup.engines.torch.task import Task
from rampup.engines.torch.world import World
from rampup.rundir.records import Record
from rampup.runtime.job import Job, TrainingResult

NAME = "torch"
Indices = NDArray[np.int64]


def load_target(config: Record, settings: Settings) -> Task:
    """Import the recipe and build its task."""
    task: Task = parts.load_entry(config)(settings)
    return task


def train(job: Job, task: Task) -> TrainingResult:
    """Train to the last epoch, to the target, or until asked to stop.

    The outcome is the same on every rank. `engine=` can choose another engine that trains the same
    tasks.
    """
    settings, context = job.settings, job.context
    engine = settings.get("engine", NAME)
    if engine != NAME:
        outcome: TrainingResult = importlib.import_module(f"rampup.engines.{engine}.engine").train(
            job, task
        )
        return outcome
    if context.threads:
        torch.set_num_threads(context.threads)
    device = torch_device.choose(settings.device, context, job.gpus_per_node)
    torch_device.check_precision(settings.precision, device)
    if device.type == "cpu":
        hardware.disable_malloc_trim()
    with World(context, device, settings.get("backend", "auto")) as world:
        return Training(job, task, world).run()


class Training(Loop):
    """One rank's side of a run: the parts built from the settings, and the step that uses them."""

    def __init__(self, job: Job, task: Task, world: World) -> None:
        settings, phases = job.settings, job.phases
        phases.mark("start")
        self.data, validation = torch_parts.build_data(task, job)
        phases.mark("data")
        super().__init__(job, world, len(self.data))
        self.world: World = world
        self.task = task
        self.model = torch_parts.build_model(task, world)
        self.optimizer = task.optimizer(self.model)
        self.base_rates = [float(group["lr"]) for group in self.optimizer.param_groups]
        self.scaler = GradScaler(world.device.type, enabled=settings.precision == "fp16")
        called = torch_parts.compile_model(self.model, settings)
        self.gradients = build_gradients(settings.gradients, called, self.scaler, world)
        self.autocast = torch_device.autocast(settings.precision, world.device)
        self.loss: torch_parts.RunningLoss = torch_parts.RunningLoss(world.device)
        self.facts = self._facts()
        self.state = State(self.model, self.optimizer, self.scaler, self.loss, world, settings.seed)
        phases.mark("start")
        self.evaluation = Evaluation(
            task, called, validation, world, self.autocast, self._is_stopping
        )
        phases.mark("evaluation")
        parts.check_monitor(settings.monitor, self.evaluation.metrics)
        self.cut = build_cut(task, self.model, self.data, world, self.autocast)
        self.insight = Insight(job, task, self.model, self.evaluation)
        # Read on every step, so not looked up by name there.
        self.clip: float | None = settings.clip
        self.order_of: Callable[[int], Indices] = partial(
            permutation, settings.seed, size=self.samples
        )
        self.moves: bool = settings.channels_last or world.device.type != "cpu"

    # the parts of the loop ------------------------------------------------------------------------

    def begin(self) -> None:
        self.insight.begin()
        data: Any = self.data
        if hasattr(data, "plan"):  # it is read while the steps compute
            batch_size, rank = self.settings.batch_size, self.world.rank
            self.order_of = data.order(self.settings.seed, batch_size)
            places = (self.samples, batch_size, self.step, self.last_step)
            data.plan(pieces_to_come(self.cut, rank, self.order_of, *places), self._is_stopping)

    def _is_stopping(self) -> bool:
        return bool(self.job.stop.reason)

    def describe_benchmark(self) -> tuple[Benchmark, dict[str, object]] | None:
        benchmark = self.task.benchmark(self.optimizer, self.schedule.steps)
        if benchmark is None:
            return None
        ranks_per_node = self.job.context.local_world_size
        on_gpu = self.world.device.type != "cpu"
        return benchmark, {
            "seed": self.settings.seed,
            "number_of_ranks": self.world.size,
            "number_of_nodes": -(-self.world.size // ranks_per_node),
            "accelerators_per_node": ranks_per_node if on_gpu else 0,
            "global_batch_size": self.settings.batch_size,
            "gradient_accumulation_frequency": self.settings.accumulate,
            "train_samples": self.samples,
            "eval_samples": self.evaluation.samples,
        }

    def begin_epoch(self, epoch: int) -> None:
        self.order = torch.from_numpy(self.order_of(epoch))
        self.job.phases.mark("data")

    def take_step(self, epoch: int, low: int, high: int) -> None:
        samples, gradients, mark = high - low, self.gradients, self.job.phases.mark
        pieces = self.cut.pieces_of(low, high, self.world.rank)
        gradients.begin(self.cut.active_ranks(samples), len(pieces))
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
        gradients.stop_vote = bool(self.job.stop.reason)
        gradients.save_vote = self.job.saving.wants_checkpoint()
        mark("compute")
        loss = gradients.reduce()
        mark("communication")
        self._update()
        self.stop_agreed, self.save_agreed = gradients.stop_agreed, gradients.save_agreed
        self.loss.add(loss, samples)
        mark("compute")

    def evaluate(self) -> dict[str, float]:
        return self.evaluation.run()

    def show_row(self, epoch: int, row: dict[str, float]) -> None:
        super().show_row(epoch, self.evaluation.shorten(row))
        self.insight.update(self.step, epoch)
        self.job.phases.mark("evaluation")

    def end(self) -> None:
        self.insight.show()
        self.job.phases.mark("evaluation")

    def learning_rate(self) -> float:
        return float(self.optimizer.param_groups[0]["lr"])

    def inexact_reasons(self) -> list[str]:
        if self.world.device.type != "cpu":
            return [parts.GPU_SUMS]
        ddp = self.world.size > 2 and isinstance(self.gradients, DdpGradients)
        return ["gradients=ddp sums in another order after it starts"] if ddp else []

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
        return parts.resume_facts(
            world_size=self.world.size,
            threads=torch.get_num_threads(),
            device=str(self.world.device),
            gradients=self.gradients.name,
            packages={"torch": str(torch.__version__), "numpy": np.__version__},
        )
