"""The torch engine: a lean loop over a Task in plain PyTorch. The worker calls `train` on every rank.

Every global batch holds the same samples on any number of ranks, gradients are summed, validation counts each sample
once. The learning rate and the order of the data follow from the step alone, so a later attempt goes on at any step.
It never parses a scheduler's variables and never opens a file: rows, lines and checkpoints go through the job.
"""

import platform
import time

import numpy as np
import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler

from rampup import __version__
from rampup.data.order import permutation, piece
from rampup.engines import cpu, torch_device, torch_parts, torch_state
from rampup.engines.settings import lower_is_better
from rampup.engines.torch_evaluation import Evaluation
from rampup.engines.torch_gradients import Ddp, gradients_of
from rampup.engines.torch_insight import Insight
from rampup.engines.torch_task import Task
from rampup.engines.torch_world import World
from rampup.errors import Superseded
from rampup.runtime import exactness
from rampup.runtime.job import Best, Job, Outcome
from rampup.runtime.stop import SUPERSEDED
from rampup.runtime.storage import say


def train(job: Job, task: Task) -> Outcome:
    """Train to the last epoch, to the target, or until asked to stop. The outcome is the same on every rank."""
    settings, context = job.settings, job.context
    if context.threads:
        torch.set_num_threads(context.threads)
    device = torch_device.choose(settings.device, context, job.gpus_per_node)
    torch_device.check_precision(settings.precision, device)
    if device.type == "cpu":
        cpu.keep_memory()
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
        self.facts = self._facts()
        self.state = torch_state.State(self.model, self.optimizer, self.scaler, self.loss, world, settings.seed)
        phases.mark("start")
        self.evaluation = Evaluation(task, called, validation, world, self.autocast)
        phases.mark("evaluation")
        torch_parts.check_monitor(settings.monitor, self.evaluation.metrics)
        self.insight = Insight(job, task, self.model, self.evaluation)
        # Read on every step, so not looked up by name there.
        self.clip: float | None = settings.clip
        self.accumulate: int = settings.accumulate
        self.moves: bool = settings.channels_last or world.device.type != "cpu"
        self.target: float | None = settings.target
        self.lowest = lower_is_better(settings.monitor, settings.monitor_mode)
        self.step = self.last_step = 0
        self.best: Best | None = None

    # the run ---------------------------------------------------------------------------------------------------

    def run(self) -> Outcome:
        job = self.job
        job.events.write("start", **self.facts)
        self._resume()
        self.last_step = self._last_step()
        job.progress.begin(self.last_step, self.settings.epochs, self.loss.of_epoch, self.step)
        job.saving.cadence.begin(self.steps_per_epoch)
        job.stop.listen()
        self.insight.begin()
        job.phases.mark("start")
        try:
            stopped = self._train()
            self.insight.show()
            job.phases.mark("evaluation")
            self._save_last()
        finally:
            job.saving.end()
        job.progress.end()
        saved = not job.saving.never
        if stopped:
            job.stop.obey(self.step if saved else None)
        return Outcome(self.best, f"step-{self.step}" if saved else None, stopped, self.step)

    def _train(self) -> bool:
        """To the last step, to the target, or until all ranks agree to stop. Whether they did."""
        while self.step < self.last_step:
            epoch = self.step // self.steps_per_epoch + 1
            row = self._epoch(epoch)
            if row is None:
                return True
            self.job.metrics.write(self.step, **row)
            self.job.metrics.flush()
            self.job.progress.milestone(self.step, self.evaluation.brief(row))
            self.insight.validated(self.step, epoch)
            self.job.phases.mark("evaluation")
            new_best = self._is_best(row)
            if new_best:
                self.best = Best(self.settings.monitor, row[self.settings.monitor], epoch, self.step)
            if self.step == self.last_step or self._reached_target(row):
                return False
            if self.gradients.stop_agreed:
                self._refuse_a_ghost()
                return True
            if self._save_is_due():
                self._save()
            elif new_best:
                self._hold_best()
        return False

    def _last_step(self) -> int:
        last: int = self.settings.epochs * self.steps_per_epoch
        limit = self.settings.max_steps
        if self.best is not None and self._reached_target({self.settings.monitor: self.best.value}):
            return self.step  # it was all done, and only the end was not told
        if self.job.smoke:  # a trial of the job script: each attempt takes one step
            limit = self.step + 1
        return last if limit is None else min(last, limit)

    def _resume(self) -> None:
        """A later attempt goes on after the newest sound checkpoint, at any step: the order follows from it."""
        store, newest, first = self.job.checkpoints, None, self.world.rank == 0
        if first:
            store.take_over()
            newest = store.latest()
        # One rank decides: two that find different checkpoints would train different models as one.
        step = self.world.agree(newest.step if newest else -1)
        if step < 0:
            return
        self.step, self.best = self.state.put_back(store.file(step, torch_state.FILE))
        self.job.saving.saved = self.step
        if newest:
            why_not = exactness.differences(newest.meta, self.facts) + self._inexact()
            self.job.events.write("resumed", step=self.step, exact=not why_not, why_not=why_not)
            say(exactness.resumed_line(self.step, why_not))

    def _inexact(self) -> list[str]:
        """What can't be repeated bit for bit, resumed or not."""
        if self.world.device.type != "cpu":
            return ["sums on a GPU come in any order"]
        ddp = self.world.size > 2 and isinstance(self.gradients, Ddp)
        return ["gradients=ddp sums in another order after it starts"] if ddp else []

    def _epoch(self, epoch: int) -> dict[str, float] | None:
        """One pass over the data, or what is left of it, validated; its row, or none when it ended in the middle."""
        began, samples = time.perf_counter(), self._train_epoch(epoch)
        if self.gradients.stop_agreed and self.step < self.last_step and self.step % self.steps_per_epoch:
            self._refuse_a_ghost()
            return None
        train_loss = self.loss.of_epoch()
        samples_s = samples / (time.perf_counter() - began)
        self.job.phases.mark("compute")
        found = self.evaluation.run()
        self.job.phases.mark("evaluation")
        return {"epoch": epoch, "train_loss": train_loss, **found, "lr": self._rate(), "samples_s": samples_s}

    def _train_epoch(self, epoch: int) -> int:
        """Train to the end of the epoch or of the run; how many samples it took."""
        size, batch_size, log_every = len(self.data), self.settings.batch_size, self.settings.log_every
        progress, phases, gradients = self.job.progress, self.job.phases, self.gradients
        phases.skip()
        first = (self.step % self.steps_per_epoch) * batch_size
        if first == 0:
            self.loss.restart()
        order = torch.from_numpy(permutation(self.settings.seed, epoch, size))
        phases.mark("data")
        high = first
        for low in range(first, size, batch_size):
            high = min(low + batch_size, size)
            self._step(order, low, high)
            if self.step % log_every == 0:
                self._log_row(epoch)
            progress.step(self.step, epoch, high)
            phases.skip()
            if high == size or self.step == self.last_step or gradients.stop_agreed:
                break  # at the end of an epoch, what is to be saved includes its validation
            if self._save_is_due():
                self._save()
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
            batch = self.task.augment(batch, self.step // self.steps_per_epoch + 1)
            mark("data")
            with self.autocast:
                loss = self.task.loss(gradients.model, batch)
            gradients.add(loss, (end - begin) / samples)
        gradients.wish_stop, gradients.wish_save = bool(self.job.stop.asked), self.job.saving.wishes()
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

    def _save_is_due(self) -> bool:
        return self.gradients.save_agreed or self.job.saving.cadence.due_at(self.step)

    def _save(self, last: bool = False) -> None:
        """All ranks call it: what each of them has goes into it, and the first one writes."""
        saving = self.job.saving
        self.job.phases.skip()
        with saving.stalled():
            saving.ready()
            self.job.metrics.flush()  # no row up to this step may be missing when a later attempt goes on from here
            snapshot = self.state.take(self.step, self.best, self.facts)
        saving.write(snapshot, self.best.step if self.best else None, last)
        self.job.phases.mark("saving")

    def _hold_best(self) -> None:
        """The best state so far, in memory; an epoch's end alone is no reason to write."""
        saving = self.job.saving
        if saving.never:
            return
        self.job.phases.skip()
        with saving.stalled():
            saving.ready(best=True)
            snapshot = self.state.take(self.step, self.best, self.facts, is_best=True)
        saving.hold(snapshot)
        self.job.phases.mark("saving")

    def _save_last(self) -> None:
        """Nobody leaves before it is on the disk."""
        saving = self.job.saving
        if saving.never:
            return
        saving.ready()
        if not self.world.agree(int(saving.saved == self.step)):
            self._save(last=True)
        self.world.wait()

    def _refuse_a_ghost(self) -> None:
        """The ranks agreed to stop; if a newer attempt has begun, they must leave everything as it is."""
        if self.world.agree(int(self.job.stop.asked == SUPERSEDED)):
            raise Superseded(f"a newer attempt of this run has begun: attempt {self.job.context.attempt} ends here")

    def _facts(self) -> dict[str, object]:
        """What a resumed run must share with this one to be equal bit for bit."""
        return {
            "world_size": self.world.size,
            "threads": torch.get_num_threads(),
            "device": str(self.world.device),
            "gradients": type(self.gradients).__name__.lower(),
            "cpu": cpu.model_name(),
            "versions": {
                "rampup": __version__,
                "torch": str(torch.__version__),
                "numpy": np.__version__,
                "python": platform.python_version(),
            },
        }
