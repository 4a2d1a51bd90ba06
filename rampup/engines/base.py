"""The loop around the steps of an engine: epochs, rows, the best, checkpoints, stop and resume.

The engines of torch and Keras subclass Loop, build their parts, and define how to take one step and
how to validate. The next step follows from the number of steps so far alone, so a later attempt can
continue anywhere. All ranks walk through this code together and differ only in what they may write.
It never imports a framework.
"""

import time
from abc import ABC, abstractmethod
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from rampup.core.metrics import lower_is_better
from rampup.core.mlperf import Benchmark
from rampup.engines import parts
from rampup.rundir.files import checkpoint_name
from rampup.rundir.mlperf import ABORTED, RUN_STOP, SUCCESS
from rampup.runtime.checkpoints.saving import Snapshot
from rampup.runtime.checkpoints.store import find_differences
from rampup.runtime.job import Best, Job, TrainingResult
from rampup.runtime.stop import SUPERSEDED
from rampup.runtime.storage import say


class State(Protocol):
    """The complete state of a training."""

    def take(
        self, step: int, best: Best | None, facts: dict[str, Any], is_best: bool = False
    ) -> Snapshot: ...

    def restore(self, folder: Path) -> tuple[int, Best | None]: ...


class Loop(ABC):
    """The course of a training on one rank."""

    facts: dict[str, Any]
    """What a resumed run must share with this one to be equal bit for bit."""
    loss: parts.RunningLoss
    state: State

    def __init__(self, job: Job, world: parts.Ranks, samples: int) -> None:
        """`samples` is the size of the training data."""
        settings = job.settings
        self.job, self.world, self.settings, self.samples = job, world, settings, samples
        self.steps_per_epoch = -(-samples // settings.batch_size)
        self.schedule = parts.build_schedule(settings, self.steps_per_epoch, samples)
        self.target: float | None = settings.target
        self.quality = self.target
        """What a benchmark asks for, where the user gives no target."""
        self.lower = lower_is_better(settings.monitor, settings.monitor_mode)
        self.early_stop = parts.EarlyStop(settings, self.lower)
        self.step = self.last_step = 0
        self.best: Best | None = None
        self.stop_agreed = self.save_agreed = False
        """Whether any rank voted to stop, or to save; after a step, the same on every rank."""

    # what an engine defines -----------------------------------------------------------------------

    @abstractmethod
    def begin(self) -> None:
        """Prepare the steps that follow `self.step`."""

    @abstractmethod
    def begin_epoch(self, epoch: int) -> None:
        """Prepare the steps of this epoch."""

    @abstractmethod
    def take_step(self, epoch: int, low: int, high: int) -> None:
        """Make one update from the samples [low, high) of the epoch's order, on all ranks.

        It increments `self.step` and sets `stop_agreed` and `save_agreed`.
        """

    def end_epoch(self, epoch: int) -> None:
        """Do what follows the last step of an epoch, before its validation, on all ranks.

        A checkpoint of that step is taken after it. Most engines have nothing to do here.
        """
        return

    @abstractmethod
    def evaluate(self) -> dict[str, float]:
        """Return the metrics of the current model, the same on every rank."""

    def show_row(self, epoch: int, row: dict[str, float]) -> None:
        """Show the row of an epoch, which is written already."""
        self.job.progress.milestone(self.step, row)

    @abstractmethod
    def end(self) -> None:
        """Finish after the last step, before it is saved."""

    @abstractmethod
    def learning_rate(self) -> float:
        """Return the learning rate of the last step."""

    @abstractmethod
    def inexact_reasons(self) -> list[str]:
        """Return what can't be repeated bit for bit, resumed or not."""

    def describe_benchmark(self) -> tuple[Benchmark, dict[str, Any]] | None:
        """Return the benchmark of MLPerf that this is, with the constants that the engine knows; or
        None."""
        return None

    # the run --------------------------------------------------------------------------------------

    def run(self) -> TrainingResult:
        job = self.job
        job.events.write("start", **self.facts)
        if job.context.rank == 0:
            parts.note_large_batch(self.settings.batch_size, self.samples)
        self._resume()
        self._begin_log()
        self.last_step = self._last_step()
        job.progress.begin(self.last_step, self.settings.epochs, self.loss.epoch_mean, self.step)
        job.saving.cadence.begin(self.steps_per_epoch)
        job.stop.arm()
        self.begin()
        job.phases.mark("start")
        try:
            stopped = self._train()
            self.end()
            self._save_last()
        finally:
            job.saving.end()
        job.progress.end()
        if not stopped:
            job.mlperf.end(RUN_STOP, self.step, status=self._judge())
        saved = not job.saving.never
        if stopped:
            job.stop.acknowledge(self.step if saved else None)
        return TrainingResult(
            self.best, checkpoint_name(self.step) if saved else None, stopped, self.step
        )

    def _train(self) -> bool:
        """Train to the last step, to the target, or until all ranks agree to stop.

        Returns whether they agreed to stop.
        """
        while self.step < self.last_step:
            epoch = self.step // self.steps_per_epoch + 1
            row = self._epoch(epoch)
            if row is None:
                return True
            self.job.metrics.write(self.step, **row)
            self.job.metrics.flush()
            self.show_row(epoch, row)
            self.job.mlperf.end("epoch_stop", self.step, epoch)
            value = row[self.settings.monitor]
            new_best = self._is_best(value)
            if new_best:
                found = Best(self.settings.monitor, value, epoch, self.step)
                self.best = self.early_stop.mark(found, self.best)
            if self.step == self.last_step or self._reached_target(value):
                return False
            if self.early_stop.is_due(self.best, epoch):
                if self.world.rank == 0:
                    say(self.early_stop.describe(self.best, self.settings.monitor))
                return False
            if self.stop_agreed:
                self._raise_if_superseded()
                return True
            if self._save_is_due():
                self._save()
            elif new_best:
                self._hold_best()
        return False

    def _begin_log(self) -> None:
        """Begin the log of MLPerf, where the recipe has a benchmark."""
        found = self.describe_benchmark()
        if found is None:
            return
        benchmark, known = found
        self.quality = benchmark.quality if self.target is None else self.target
        self.job.mlperf.begin(benchmark, known, self.step)

    def _judge(self) -> str:
        """Return how the log of MLPerf ends: success where the target was reached."""
        if self.best is None or self.quality is None:
            return ABORTED
        reached = parts.reaches(self.best.value, self.quality, self.lower)
        return SUCCESS if reached else ABORTED

    def _last_step(self) -> int:
        last: int = self.settings.epochs * self.steps_per_epoch
        limit = self.settings.max_steps
        if self.best is not None and self._reached_target(self.best.value):
            return self.step  # the training was complete, and only its end was not recorded
        epoch, within = divmod(self.step, self.steps_per_epoch)
        if not within and self.step and self.early_stop.is_due(self.best, epoch):
            return self.step
        if self.job.smoke:  # a trial of the job script: each attempt takes one step
            limit = self.step + 1
        return last if limit is None else min(last, limit)

    def _resume(self) -> None:
        """Continue after the newest sound checkpoint, if there is one."""
        step, newest = parts.agree_on_checkpoint(self.job, self.world)
        if step < 0:
            return
        folder = self.job.checkpoints.run.checkpoint(step)
        self.step, self.best = self.state.restore(folder)
        self.job.saving.saved = self.step
        if newest:
            why_not = find_differences(newest.meta, self.facts) + self.inexact_reasons()
            say(parts.record_resume(self.job, self.step, why_not))

    def _epoch(self, epoch: int) -> dict[str, float] | None:
        """Train and validate one epoch, or the rest of it.

        Returns its row, or None when the training stopped in the middle of the epoch.
        """
        log = self.job.mlperf
        log.start("epoch_start", self.step, epoch)
        began, samples = time.perf_counter(), self._train_epoch(epoch)
        if self.stop_agreed and self.step < self.last_step and self.step % self.steps_per_epoch:
            self._raise_if_superseded()
            return None
        train_loss = self.loss.epoch_mean()
        if self.step % self.steps_per_epoch == 0:
            self.end_epoch(epoch)
        samples_s = samples / (time.perf_counter() - began)
        self.job.phases.mark("compute")
        log.point("learning_rate", self.learning_rate(), self.step, epoch)
        log.point("train_loss", train_loss, self.step, epoch)
        log.start("eval_start", self.step, epoch)
        found = self.evaluate()
        log.results(found, self.step, epoch)
        self.job.phases.mark("evaluation")
        row = {
            "epoch": epoch,
            "train_loss": train_loss,
            **found,
            "lr": self.learning_rate(),
            "samples_s": samples_s,
        }
        if samples == self.samples:
            row["epoch_s"] = time.perf_counter() - began
        if self._reached_target(row[self.settings.monitor]):
            log.point("target_accuracy_reached", self.target, self.step, epoch)
        log.end("eval_stop", self.step, epoch)
        return row

    def _train_epoch(self, epoch: int) -> int:
        """Train to the end of the epoch or of the run; returns the number of samples."""
        batch_size, log_every = self.settings.batch_size, self.settings.log_every
        progress, phases = self.job.progress, self.job.phases
        phases.skip()
        high = first = (self.step % self.steps_per_epoch) * batch_size
        if first == 0:
            self.loss.restart()
        self.begin_epoch(epoch)
        for low in range(first, self.samples, batch_size):
            high = min(low + batch_size, self.samples)
            self.take_step(epoch, low, high)
            if self.step % log_every == 0:
                self._log_row(epoch)
            progress.step(self.step, epoch, high)
            phases.skip()
            if high == self.samples or self.step == self.last_step or self.stop_agreed:
                break  # at the end of an epoch, a checkpoint includes its validation
            if self._save_is_due():
                self._save()
        trained: int = high - first
        return trained

    # rows and checkpoints -------------------------------------------------------------------------

    def _log_row(self, epoch: int) -> None:
        train_loss = self.loss.row_mean()
        self.job.phases.mark("compute")  # on a GPU, reading the loss waits for the steps before
        lr = self.learning_rate()
        self.job.metrics.write(self.step, epoch=epoch, train_loss=train_loss, lr=lr)

    def _is_best(self, value: float) -> bool:
        if self.best is None:
            return value == value  # NaN is never the best
        return parts.is_better(value, self.best.value, self.lower)

    def _reached_target(self, value: float) -> bool:
        return self.target is not None and parts.reaches(value, self.target, self.lower)

    def _save_is_due(self) -> bool:
        return self.save_agreed or self.job.saving.cadence.due_at(self.step)

    def _save(self, last: bool = False) -> None:
        self.job.phases.skip()
        take = partial(self.state.take, self.step, self.best, self.facts)
        self.job.mlperf.start("save_start", self.step)
        parts.save(self.job, take, self.best, last)
        self.job.mlperf.end("save_stop", self.step)
        self.job.phases.mark("saving")

    def _hold_best(self) -> None:
        if self.job.saving.never:
            return
        self.job.phases.skip()
        take = partial(self.state.take, self.step, self.best, self.facts, is_best=True)
        parts.hold_best(self.job, take)
        self.job.phases.mark("saving")

    def _save_last(self) -> None:
        """Save the last step; no rank leaves before it is on the disk."""
        saving = self.job.saving
        if saving.never:
            return
        saving.wait_until_ready()
        if not self.world.agree(int(saving.saved == self.step)):
            self._save(last=True)
        self.world.wait()

    def _raise_if_superseded(self) -> None:
        """Leave everything as it is if a newer attempt has begun; called when the ranks stop."""
        if self.world.agree(int(self.job.stop.reason == SUPERSEDED)):
            raise parts.superseded(self.job.context.attempt)
