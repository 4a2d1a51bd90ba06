"""Metrics of a LightningModule as rows of a run, under the names that every run has.

engine.py calls Rows at each event of a training. Rank 0 writes a row every few steps and one for
each epoch: `epoch`, `train_loss`, `lr`, `samples_s`, `epoch_s`, and what the module logs by
`self.log`. A module that logs no loss still has the mean of what training_step returns. It never
saves and never stops: it only remembers the best epoch.
"""

import time
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from lightning.pytorch import Trainer

from rampup.core.metrics import lower_is_better
from rampup.engines.parts import is_better
from rampup.engines.torch.evaluation import CLASS_METRICS
from rampup.engines.torch.parts import RunningLoss
from rampup.engines.torch.world import World
from rampup.runtime.job import Best, Job
from rampup.runtime.storage import say
from rampup.runtime.telemetry.metrics import to_plain

FALLBACKS = (
    *("val_accuracy", "val_acc", "val/accuracy", "val/acc", "valid_accuracy", "valid_acc"),
    *("val_loss", "val/loss", "valid_loss", "valid/loss", "validation_loss", "train_loss"),
)
"""The metrics that choose the best epoch by default: the first of these that there is."""
VALIDATED = ("val", "valid", "test", "eval", "dev")
OURS = ("epoch", "step", "t")
"""The columns of every row; a module may log them too, for the axis of its charts."""


class Rows:
    """The rows of one rank; only rank 0 writes."""

    def __init__(self, job: Job, world: World, trainer: Trainer, every: int) -> None:
        self._job, self._world, self._trainer = job, world, trainer
        self._first, self._every = world.rank == 0, every
        self.loss = RunningLoss(world.device)
        self.best: Best | None = None
        self.new_best = False
        """Whether the current state is the best so far; engine.py resets it."""
        self._step_values: dict[str, Any] = {}
        self._epoch_values: dict[str, Any] = {}
        self._closing, self._hinted = False, False
        self._samples = self._trained = 0
        self._row_at, self._lr = 0, None
        self._spent_s = self._began = 0.0

    # during an epoch ------------------------------------------------------------------------------

    def begin(self, step: int) -> None:
        self._row_at, self._spent_s, self._began = step, self._busy_s(), time.perf_counter()

    def log(self, metrics: Mapping[str, Any]) -> None:
        """Keep what the module or a callback logs; Lightning's logger calls it on every rank."""
        if not self._first:
            return
        of_epoch = self._closing or self._trainer.validating
        values = self._epoch_values if of_epoch else self._step_values
        for name, value in metrics.items():
            if name not in OURS:
                values[self._name(name)] = to_plain(value)

    def batch_begins(self) -> None:
        optimizers = self._trainer.optimizers
        self._lr = optimizers[0].param_groups[0]["lr"] if optimizers else None

    def batch_ended(self, outputs: Any, batch: Any, step: int) -> None:
        samples = first_tensor_size(batch) or 1
        loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
        if isinstance(loss, torch.Tensor) and loss.numel() == 1:
            self.loss.add(loss.detach().reshape(()), samples)
        self._samples += samples * self._world.size
        self._trained += samples
        self._job.progress.step(step, self._epoch(), self._samples)

    def step_ended(self, step: int) -> None:
        """Write a row, when one is due or something was logged in the step."""
        due = step // self._every > self._row_at // self._every
        if not self._first or not (due or self._step_values or self._epoch_values):
            return
        loss = self.loss.state()
        own = {"train_loss": self.loss.row_mean()} if loss["samples"] > loss["row"] else {}
        found = dict(self._epoch_values)
        self._write(
            step, {"epoch": self._epoch(), **own, "lr": self._lr, **self._step_values, **found}
        )
        if found:  # of a validation within the epoch
            self._update_best(found, self._epoch(), step)

    # at its end -----------------------------------------------------------------------------------

    def epoch_ends(self) -> None:
        """Take what is logged from now on as values of the whole epoch."""
        self._closing = True

    def epoch_ended(self, step: int, epoch: int, whole: bool) -> None:
        """Write the row of an epoch. All ranks call it; `whole` means it came to its last batch."""
        job, spent_s = self._job, self._busy_s() - self._spent_s
        loss = self.loss.state()
        sums = torch.tensor([loss["sum"], loss["samples"], self._trained], dtype=torch.float64)
        total, samples, trained = self._world.all_reduce(sums.to(self._world.device)).tolist()
        if self._first:
            rate = {"samples_s": trained / spent_s} if spent_s > 0 else {}
            # and began in this attempt
            if whole and self._samples == self._trained * self._world.size:
                rate["epoch_s"] = time.perf_counter() - self._began
            own = {"train_loss": total / samples} if samples else {}
            row = {
                "epoch": epoch,
                **self._step_values,
                **own,
                "lr": self._lr,
                **self._epoch_values,
                **rate,
            }
            self._write(step, row)
            job.metrics.flush()
            shown = {name: value for name, value in row.items() if self._is_shown(name, value)}
            job.progress.milestone(step, shown)
            self._update_best(row, epoch, step)
        self.loss.restart()
        self._closing, self._samples, self._trained = False, 0, 0
        self._spent_s, self._began = self._busy_s(), time.perf_counter()

    def state(self) -> dict[str, Any]:
        """Return what a later attempt needs to resume this epoch on this rank."""
        return {"loss": self.loss.state(), "samples": self._samples}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.loss.load(state["loss"])
        self._samples = state["samples"]

    def _write(self, step: int, row: Mapping[str, Any]) -> None:
        known = {name: value for name, value in row.items() if value is not None}
        self._job.metrics.write(step, **known)
        self._row_at, self._step_values, self._epoch_values = step, {}, {}

    def _is_shown(self, name: str, value: Any) -> bool:
        return value is not None and name.removeprefix("val_") not in CLASS_METRICS

    def _epoch(self) -> int:
        return self._trainer.current_epoch + 1

    def _busy_s(self) -> float:
        spent = self._job.phases.seconds
        return spent["data"] + spent["compute"]

    def _name(self, name: str) -> str:
        """Remove the _step or _epoch that Lightning adds to what is logged both ways."""
        for end in ("_step", "_epoch"):
            base = name.removesuffix(end)
            if base != name and base in self._trainer.callback_metrics:
                return base
        return name

    def _update_best(self, row: Mapping[str, Any], epoch: int, step: int) -> None:
        monitor, mode = self._monitor(row)
        value = row.get(monitor)
        if not isinstance(value, int | float) or value != value:
            return
        best = self.best
        if best is not None and best.metric != monitor:
            if monitor in FALLBACKS and best.metric in FALLBACKS[: FALLBACKS.index(monitor)]:
                return  # an epoch without a validation
            best = None  # until now there was only a lesser metric
        lower = lower_is_better(monitor, mode)
        if best is None or is_better(value, best.value, lower):
            self.best, self.new_best = Best(monitor, float(value), epoch, step), True

    def _monitor(self, row: Mapping[str, Any]) -> tuple[str, str]:
        """Return the monitor and its mode: of the settings, of a callback, or by default."""
        settings = self._job.settings
        if settings.monitor:
            return settings.monitor, settings.monitor_mode
        trainer = self._trainer
        for callback in (*trainer.checkpoint_callbacks, *trainer.early_stopping_callbacks):
            if getattr(callback, "monitor", None):
                return str(callback.monitor), str(getattr(callback, "mode", "auto"))  # type: ignore[attr-defined]
        found = next((name for name in FALLBACKS if name in row), FALLBACKS[-1])
        if found == FALLBACKS[-1]:
            self._hint_at_monitor(row)
        return found, "auto"

    def _hint_at_monitor(self, row: Mapping[str, Any]) -> None:
        """Say once how another metric decides, where a validation measured some."""
        others = [name for name in row if name.lower().startswith(VALIDATED)]
        if others and not self._hinted:
            self._hinted = True
            say(
                f"note: {FALLBACKS[-1]} decides which epoch is best; to judge by a validation: "
                f"monitor={others[0]}"
            )


def first_tensor_size(batch: Any) -> int:
    """Return the number of samples of a batch: the length of the first tensor in it, or 0."""
    if isinstance(batch, torch.Tensor):
        return batch.shape[0] if batch.dim() else 1
    parts: Iterable[Any] = ()
    if isinstance(batch, dict):
        parts = batch.values()
    elif isinstance(batch, list | tuple):
        parts = batch
    for part in parts:
        size = first_tensor_size(part)
        if size:
            return size
    return 0
