"""The torch engine: a lean loop over a Task in plain PyTorch. The worker calls `train` on every rank.

Every global batch holds the same samples on any number of ranks, gradients are summed, validation counts each sample
once. The learning rate and the order of the data follow from the step alone. It never parses a scheduler's variables
and never opens a file: rows, lines and checkpoints go through the job.
"""

import platform
import time
from dataclasses import asdict

import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler

from rampup import __version__
from rampup.data.order import permutation, piece
from rampup.engines import torch_device, torch_parts
from rampup.engines.settings import lower_is_better
from rampup.engines.torch_evaluation import Evaluation
from rampup.engines.torch_gradients import gradients_of
from rampup.engines.torch_task import Task
from rampup.engines.torch_world import World
from rampup.runtime.job import Best, Job, Outcome


def train(job: Job, task: Task) -> Outcome:
    """Train to the last epoch or to the target. The outcome is the same on every rank."""
    settings, context = job.settings, job.context
    if context.threads:
        torch.set_num_threads(context.threads)
    device = torch_device.choose(settings.device, context, job.gpus_per_node)
    torch_device.check_precision(settings.precision, device)
    with World(context, device) as world:
        return Training(job, task, world).run()


class Training:
    """One rank's side of a run: parts built from the settings, and the loop that turns them."""

    def __init__(self, job: Job, task: Task, world: World) -> None:
        settings, phases = job.settings, job.phases
        self.job, self.task, self.world, self.settings = job, task, world, settings
        phases.mark("start")
        self.data, validation = torch_parts.build_data(task)
        phases.mark("data")
        self.model = torch_parts.build_model(task, world)
        self.optimizer = task.optimizer(self.model)
        self.base_rates = [float(group["lr"]) for group in self.optimizer.param_groups]
        self.scaler = GradScaler(world.device.type, enabled=settings.precision == "fp16")
        called = torch_parts.compiled(self.model, settings)
        self.gradients = gradients_of(settings.gradients, called, self.scaler, world)
        self.autocast = torch_device.autocast(settings.precision, world.device)
        self.steps_per_epoch = -(-len(self.data) // settings.batch_size)
        self.schedule = torch_parts.build_schedule(settings, self.steps_per_epoch)
        self.loss = torch_parts.RunningLoss(world.device)
        phases.mark("start")
        self.evaluation = Evaluation(task, called, validation, world, self.autocast)
        phases.mark("evaluation")
        torch_parts.check_monitor(settings.monitor, self.evaluation.metrics)
        # Read on every step, so not looked up by name there.
        self.clip: float | None = settings.clip
        self.accumulate: int = settings.accumulate
        self.moves: bool = settings.channels_last or world.device.type != "cpu"
        self.target: float | None = settings.target
        self.lowest = lower_is_better(settings.monitor, settings.monitor_mode)
        self.step = self.last_step = 0
        self.best: Best | None = None
        self.saved: int | None = None

    # the run ---------------------------------------------------------------------------------------------------

    def run(self) -> Outcome:
        epochs, job = self.settings.epochs, self.job
        job.events.write("start", **self._facts())
        self._resume()
        self.last_step = self._last_step()
        job.progress.begin(self.last_step, epochs, self.loss.of_epoch, self.step)
        job.phases.mark("start")
        while self.step < self.last_step:
            epoch = self.step // self.steps_per_epoch + 1
            row = self._epoch(epoch)
            job.metrics.write(self.step, **row)
            job.metrics.flush()
            job.progress.milestone(self.step, row)
            if self._is_best(row):
                self.best = Best(self.settings.monitor, row[self.settings.monitor], epoch, self.step)
                self._save()
            if self._reached_target(row):
                break
        self._save()
        job.progress.end()
        return Outcome(self.best, None if self.saved is None else f"step-{self.saved}")

    def _last_step(self) -> int:
        last: int = self.settings.epochs * self.steps_per_epoch
        limit = self.settings.max_steps
        return last if limit is None else min(last, self.step + limit)

    def _resume(self) -> None:
        """A later attempt goes on after the newest sound checkpoint, at any step: the order follows from it."""
        if self.job.context.attempt == 1:
            return
        # One rank decides: two that find different checkpoints would train different models as one.
        newest = self.job.checkpoints.latest() if self.world.rank == 0 else None
        step = self.world.agree(newest.step if newest else -1)
        if step < 0:
            return
        state = torch.load(
            self.job.checkpoints.file(step, "state.pt"), map_location=self.world.device, weights_only=True
        )
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.scaler.load_state_dict(state["scaler"])
        self.loss.load(state["loss"])
        self.step = self.saved = state["step"]
        self.best = Best(**state["best"]) if state["best"] else None
        self.job.events.write("resumed", step=self.step)
        if self.world.rank == 0:
            print(f"resumed at step {self.step}", flush=True)

    def _epoch(self, epoch: int) -> dict[str, float]:
        """One pass over the data, or what is left of it, validated; returns the row of the epoch."""
        began, samples = time.perf_counter(), self._train_epoch(epoch)
        train_loss = self.loss.of_epoch()
        samples_s = samples / (time.perf_counter() - began)
        self.job.phases.mark("compute")
        found = self.evaluation.run()
        self.job.phases.mark("evaluation")
        return {"epoch": epoch, "train_loss": train_loss, **found, "lr": self._rate(), "samples_s": samples_s}

    def _train_epoch(self, epoch: int) -> int:
        """Train to the end of the epoch or of the run; how many samples it took."""
        size, batch_size, log_every = len(self.data), self.settings.batch_size, self.settings.log_every
        progress, phases = self.job.progress, self.job.phases
        phases.skip()
        first = (self.step % self.steps_per_epoch) * batch_size
        if first == 0:
            self.loss.restart()
        order = torch.from_numpy(permutation(self.settings.seed, epoch, size))
        phases.mark("data")
        high = first
        for low in range(first, size, batch_size):
            if self.step == self.last_step:
                break
            high = min(low + batch_size, size)
            self._step(order, low, high)
            if self.step % log_every == 0:
                self._log_row(epoch)
            progress.step(self.step, epoch, high)
            phases.skip()
        trained: int = high - first
        return trained

    def _step(self, order: Tensor, low: int, high: int) -> None:
        """One update from the samples order[low:high], this rank's and the others'."""
        samples, gradients, mark = high - low, self.gradients, self.job.phases.mark
        pieces = self._pieces(low, high)
        gradients.begin(samples, len(pieces))
        for begin, end in pieces:
            mark("compute")
            batch = self.data.batch(order[begin:end])
            if self.moves:
                batch = torch_device.move(batch, self.world.device, self.settings.channels_last)
            mark("data")
            with self.autocast:
                loss = self.task.loss(gradients.model, batch)
            gradients.add(loss, (end - begin) / samples)
        mark("compute")
        loss = gradients.reduce()
        mark("communication")
        self._update()
        self.loss.add(loss, samples)
        mark("compute")

    def _pieces(self, low: int, high: int) -> list[tuple[int, int]]:
        """This rank's part of a global batch, cut for accumulation; none when the batch is smaller than the world."""
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

    # what is told and kept --------------------------------------------------------------------------------------

    def _log_row(self, epoch: int) -> None:
        train_loss = self.loss.since_row()
        self.job.phases.mark("compute")  # on a GPU, reading the loss waits for the steps before
        self.job.metrics.write(self.step, epoch=epoch, train_loss=train_loss, lr=self._rate())

    def _rate(self) -> float:
        return float(self.optimizer.param_groups[0]["lr"])

    def _is_best(self, row: dict[str, float]) -> bool:
        value = row[self.settings.monitor]
        if self.best is None:
            return value == value  # NaN is never the best
        return value < self.best.value if self.lowest else value > self.best.value

    def _reached_target(self, row: dict[str, float]) -> bool:
        value, target = row[self.settings.monitor], self.target
        if target is None:
            return False
        return value <= target if self.lowest else value >= target

    def _save(self) -> None:
        """All ranks call it; the first one writes, the others wait."""
        if not self.settings.checkpoint or self.saved == self.step:
            return
        self.job.phases.skip()
        if self.world.rank == 0:
            state = self._state()
            files = {"state.pt": lambda file: torch.save(state, file)}
            self.job.checkpoints.save(self.step, files, self._facts())
            self.job.checkpoints.keep({self.step} if self.best is None else {self.step, self.best.step})
        self.world.wait()
        self.saved = self.step
        self.job.phases.mark("saving")

    def _state(self) -> dict[str, object]:
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.scaler.state_dict(),
            "rng": torch.get_rng_state(),
            "loss": self.loss.state(),
            "best": asdict(self.best) if self.best else None,
            "step": self.step,
        }

    def _facts(self) -> dict[str, object]:
        """What a resumed run must share with this one to be equal bit for bit."""
        return {
            "world_size": self.world.size,
            "threads": torch.get_num_threads(),
            "device": str(self.world.device),
            "gradients": type(self.gradients).__name__.lower(),
            "versions": {"rampup": __version__, "torch": str(torch.__version__), "python": platform.python_version()},
        }
