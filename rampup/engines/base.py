"""The loop around the steps of an engine: epochs, rows, the best, checkpoints, stopping and going
on. Framework-free.

An engine subclasses Loop, builds its parts, and says how one step is taken and how the model is
validated. Which step is next follows from the number of steps so far alone, so a later attempt goes
on anywhere. All ranks walk through this code together; only what each of them is given to write to
differs.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from rampup.core.metrics import lower_is_better
from rampup.core.settings import Settings
from rampup.engines.schedule import Schedule
from rampup.errors import RampupError, Superseded, nearest
from rampup.rundir.files import checkpoint_name
from rampup.runtime.checkpoints.saving import Snapshot
from rampup.runtime.checkpoints.store import find_differences, format_resumed
from rampup.runtime.job import Best, Job, TrainingResult
from rampup.runtime.stop import SUPERSEDED
from rampup.runtime.storage import say


class Ranks(Protocol):
    """The ranks of a run as one group."""

    rank: int
    size: int

    def agree(self, number: int) -> int:
        """What rank 0 says, on every rank."""

    def wait(self) -> None:
        """Until all ranks are here."""


class Losses(Protocol):
    """The mean training loss."""

    def restart(self) -> None: ...

    def of_epoch(self) -> float: ...

    def since_row(self) -> float: ...


class State(Protocol):
    """The complete state of a training."""

    def take(
        self, step: int, best: Best | None, facts: dict[str, Any], is_best: bool = False
    ) -> Snapshot: ...

    def put_back(self, folder: Path) -> tuple[int, Best | None]: ...


class Loop(ABC):
    facts: dict[str, Any]
    """What a resumed run must share with this one to be equal bit for bit."""
    loss: Losses
    state: State

    def __init__(self, job: Job, world: Ranks, samples: int) -> None:
        """`samples`: how many there are to train on."""
        settings = job.settings
        self.job, self.world, self.settings, self.samples = job, world, settings, samples
        self.steps_per_epoch = -(-samples // settings.batch_size)
        self.schedule = schedule_of(settings, self.steps_per_epoch)
        self.target: float | None = settings.target
        self.lowest = lower_is_better(settings.monitor, settings.monitor_mode)
        self.step = self.last_step = 0
        self.best: Best | None = None
        self.stop_agreed = self.save_agreed = False
        """After a step, and the same on every rank: whether any rank wished to stop, or to save."""

    # what an engine says --------------------------------------------------------------------------

    @abstractmethod
    def begin(self) -> None:
        """Steps will be taken from `self.step` on."""

    @abstractmethod
    def begin_epoch(self, epoch: int) -> None:
        """The next steps are of this epoch."""

    @abstractmethod
    def take_step(self, epoch: int, low: int, high: int) -> None:
        """One update from the samples [low, high) of the epoch's order, this rank's and the
        others'.

        Counts `self.step` up and sets `stop_agreed` and `save_agreed`.
        """

    @abstractmethod
    def evaluate(self) -> dict[str, float]:
        """The metrics of the model as it is now, the same on every rank."""

    def validated(self, epoch: int, row: dict[str, float]) -> None:
        """The row of an epoch is written: show it."""
        self.job.progress.milestone(self.step, row)

    @abstractmethod
    def end(self) -> None:
        """The last step is taken, and not yet saved."""

    @abstractmethod
    def rate(self) -> float:
        """The learning rate of the last step."""

    @abstractmethod
    def inexact(self) -> list[str]:
        """What can't be repeated bit for bit, resumed or not."""

    # the run --------------------------------------------------------------------------------------

    def run(self) -> TrainingResult:
        job = self.job
        job.events.write("start", **self.facts)
        self._resume()
        self.last_step = self._last_step()
        job.progress.begin(self.last_step, self.settings.epochs, self.loss.of_epoch, self.step)
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
        saved = not job.saving.never
        if stopped:
            job.stop.acknowledge(self.step if saved else None)
        return TrainingResult(
            self.best, checkpoint_name(self.step) if saved else None, stopped, self.step
        )

    def _train(self) -> bool:
        """To the last step, to the target, or until all ranks agree to stop. Whether they did."""
        while self.step < self.last_step:
            epoch = self.step // self.steps_per_epoch + 1
            row = self._epoch(epoch)
            if row is None:
                return True
            self.job.metrics.write(self.step, **row)
            self.job.metrics.flush()
            self.validated(epoch, row)
            new_best = self._is_best(row)
            if new_best:
                self.best = Best(
                    self.settings.monitor, row[self.settings.monitor], epoch, self.step
                )
            if self.step == self.last_step or self._reached_target(row):
                return False
            if self.stop_agreed:
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
        """A later attempt goes on after the newest sound checkpoint."""
        store, newest = self.job.checkpoints, None
        if self.world.rank == 0:
            store.take_over()
            newest = store.latest()
        # One rank decides: two that find different checkpoints would train different models as one.
        step = self.world.agree(newest.step if newest else -1)
        if step < 0:
            return
        self.step, self.best = self.state.put_back(store.run.checkpoint(step))
        self.job.saving.saved = self.step
        if newest:
            why_not = find_differences(newest.meta, self.facts) + self.inexact()
            self.job.events.write("resumed", step=self.step, exact=not why_not, why_not=why_not)
            say(format_resumed(self.step, why_not))

    def _epoch(self, epoch: int) -> dict[str, float] | None:
        """One pass over the data, or what is left of it, validated; its row, or none when it ended
        in the middle."""
        began, samples = time.perf_counter(), self._train_epoch(epoch)
        if self.stop_agreed and self.step < self.last_step and self.step % self.steps_per_epoch:
            self._refuse_a_ghost()
            return None
        train_loss = self.loss.of_epoch()
        samples_s = samples / (time.perf_counter() - began)
        self.job.phases.mark("compute")
        found = self.evaluate()
        self.job.phases.mark("evaluation")
        row = {
            "epoch": epoch,
            "train_loss": train_loss,
            **found,
            "lr": self.rate(),
            "samples_s": samples_s,
        }
        whole = {"epoch_s": time.perf_counter() - began} if samples == self.samples else {}
        return row | whole

    def _train_epoch(self, epoch: int) -> int:
        """Train to the end of the epoch or of the run; how many samples it took."""
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
                break  # at the end of an epoch, what is to be saved includes its validation
            if self._save_is_due():
                self._save()
        trained: int = high - first
        return trained

    # what is told and kept ------------------------------------------------------------------------

    def _log_row(self, epoch: int) -> None:
        train_loss = self.loss.since_row()
        self.job.phases.mark("compute")  # on a GPU, reading the loss waits for the steps before
        self.job.metrics.write(self.step, epoch=epoch, train_loss=train_loss, lr=self.rate())

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
        return self.save_agreed or self.job.saving.cadence.due_at(self.step)

    def _save(self, last: bool = False) -> None:
        """All ranks call it: what each of them has goes into it, and the first one writes."""
        saving = self.job.saving
        self.job.phases.skip()
        with saving.count_stall():
            saving.wait_until_ready()
            # no row up to this step may be missing when a later attempt goes on from here
            self.job.metrics.flush()
            snapshot = self.state.take(self.step, self.best, self.facts)
        saving.write(snapshot, self.best.step if self.best else None, last)
        self.job.phases.mark("saving")

    def _hold_best(self) -> None:
        """The best state so far, in memory; an epoch's end alone is no reason to write."""
        saving = self.job.saving
        if saving.never:
            return
        self.job.phases.skip()
        with saving.count_stall():
            saving.wait_until_ready(best=True)
            snapshot = self.state.take(self.step, self.best, self.facts, is_best=True)
        saving.hold_best(snapshot)
        self.job.phases.mark("saving")

    def _save_last(self) -> None:
        """Nobody leaves before it is on the disk."""
        saving = self.job.saving
        if saving.never:
            return
        saving.wait_until_ready()
        if not self.world.agree(int(saving.saved == self.step)):
            self._save(last=True)
        self.world.wait()

    def _refuse_a_ghost(self) -> None:
        """The ranks agreed to stop; if a newer attempt has begun, they must leave everything as it
        is."""
        if self.world.agree(int(self.job.stop.reason == SUPERSEDED)):
            raise Superseded(
                f"a newer attempt of this run has begun: attempt {self.job.context.attempt} ends here"
            )


def check_monitor(monitor: str, metrics: Sequence[str]) -> None:
    known = ["train_loss", *metrics]
    if monitor not in known:
        hint = (
            nearest(monitor, known)
            if metrics
            else "monitor=train_loss: there is no validation data"
        )
        raise RampupError(f"monitor={monitor} is not a metric of this recipe", hint)


def schedule_of(settings: Settings, steps_per_epoch: int) -> Schedule:
    return Schedule(
        kind=settings.schedule,
        steps=settings.epochs * steps_per_epoch,
        warmup_steps=settings.warmup_steps,
        decay_steps=settings.decay_epochs * steps_per_epoch,
        decay_factor=settings.decay_factor,
    )
