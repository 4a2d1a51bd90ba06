"""Metrics of a LightningModule as rows of a run: what the module logs, and what every run has,
under the same names.

Rank 0 writes a row every few steps and one for each epoch: `epoch`, `train_loss`, `lr`,
`samples_s`, `epoch_s`, and what the module logs by `self.log`. A module that logs no loss of its
own still has the mean of what training_step returns.
"""

import time
from collections.abc import Mapping
from typing import Any

import torch
from lightning.pytorch import Trainer

from rampup.core.metrics import lower_is_better
from rampup.engines.lightning.data import first_tensor_size
from rampup.engines.torch.evaluation import CLASS_METRICS
from rampup.engines.torch.parts import RunningLoss
from rampup.engines.torch.world import World
from rampup.runtime.job import Best, Job
from rampup.runtime.telemetry.metrics import to_plain

FALLBACKS = ("val_accuracy", "val_acc", "val_loss", "train_loss")
"""What decides which epoch is the best where nobody says it: the first of these that there is."""
OURS = ("epoch", "step", "t")
"""Columns of every row; a module may log them too, for the axis of its charts."""


class Rows:
    def __init__(self, job: Job, world: World, trainer: Trainer, every: int) -> None:
        self._job, self._world, self._trainer = job, world, trainer
        self._first, self._every = world.rank == 0, every
        self.loss = RunningLoss(world.device)
        self.best: Best | None = None
        self.new_best = False
        """Since somebody last looked: the state of now is the best so far."""
        self._of_step: dict[str, Any] = {}
        self._of_epoch: dict[str, Any] = {}
        self._closing = False
        self._samples = self._trained = 0
        self._row_at, self._lr = 0, None
        self._spent_s = self._began = 0.0

    # while an epoch goes on -----------------------------------------------------------------------

    def begin(self, step: int) -> None:
        self._row_at, self._spent_s, self._began = step, self._busy_s(), time.perf_counter()

    def log(self, metrics: Mapping[str, Any]) -> None:
        """Lightning's logger calls it on every rank, with what the module or a callback logs."""
        if self._first:
            into = self._of_epoch if self._closing or self._trainer.validating else self._of_step
            into.update(
                {
                    self._name(name): to_plain(value)
                    for name, value in metrics.items()
                    if name not in OURS
                }
            )

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
        """All that a step logs is here: a row, when one is due or something was logged."""
        due = step // self._every > self._row_at // self._every
        if not self._first or not (due or self._of_step or self._of_epoch):
            return
        loss = self.loss.state()
        own = {"train_loss": self.loss.since_row()} if loss["samples"] > loss["row"] else {}
        found = dict(self._of_epoch)
        self._write(step, {"epoch": self._epoch(), **own, "lr": self._lr, **self._of_step, **found})
        if found:  # of a validation within the epoch
            self._judge(found, self._epoch(), step)

    # at its end -----------------------------------------------------------------------------------

    def epoch_ends(self) -> None:
        """What is logged from now on is about the whole epoch."""
        self._closing = True

    def epoch_ended(self, step: int, epoch: int, whole: bool) -> None:
        """All ranks call it. `whole`: it came to its last batch."""
        job, spent_s = self._job, self._busy_s() - self._spent_s
        loss = self.loss.state()
        sums = torch.tensor([loss["sum"], loss["samples"], self._trained], dtype=torch.float64)
        total, samples, trained = self._world.sum(sums.to(self._world.device)).tolist()
        if self._first:
            rate = {"samples_s": trained / spent_s} if spent_s > 0 else {}
            # and was begun in this attempt
            if whole and self._samples == self._trained * self._world.size:
                rate["epoch_s"] = time.perf_counter() - self._began
            own = {"train_loss": total / samples} if samples else {}
            row = {"epoch": epoch, **self._of_step, **own, "lr": self._lr, **self._of_epoch, **rate}
            self._write(step, row)
            job.metrics.flush()
            job.progress.milestone(
                step, {name: value for name, value in row.items() if self._is_brief(name, value)}
            )
            self._judge(row, epoch, step)
        self.loss.restart()
        self._closing, self._samples, self._trained = False, 0, 0
        self._spent_s, self._began = self._busy_s(), time.perf_counter()

    def state(self) -> dict[str, Any]:
        """Of this rank, for a later attempt that takes up this epoch."""
        return {"loss": self.loss.state(), "samples": self._samples}

    def put_back(self, state: Mapping[str, Any]) -> None:
        self.loss.load(state["loss"])
        self._samples = state["samples"]

    def _write(self, step: int, row: Mapping[str, Any]) -> None:
        self._job.metrics.write(
            step, **{name: value for name, value in row.items() if value is not None}
        )
        self._row_at, self._of_step, self._of_epoch = step, {}, {}

    def _is_brief(self, name: str, value: Any) -> bool:
        return value is not None and name.removeprefix("val_") not in CLASS_METRICS

    def _epoch(self) -> int:
        return self._trainer.current_epoch + 1

    def _busy_s(self) -> float:
        spent = self._job.phases.seconds
        return spent["data"] + spent["compute"]

    def _name(self, name: str) -> str:
        """Without the _step or _epoch that Lightning adds to what is logged both ways."""
        for end in ("_step", "_epoch"):
            base = name.removesuffix(end)
            if base != name and base in self._trainer.callback_metrics:
                return base
        return name

    def _judge(self, row: Mapping[str, Any], epoch: int, step: int) -> None:
        monitor, mode = self._monitor(row)
        value = row.get(monitor)
        if not isinstance(value, int | float) or value != value:
            return
        best = self.best
        if best is not None and best.metric != monitor:
            if monitor in FALLBACKS and best.metric in FALLBACKS[: FALLBACKS.index(monitor)]:
                return  # an epoch without a validation
            best = None  # until now there was only something lesser to go by
        lower = lower_is_better(monitor, mode)
        if best is None or (value < best.value if lower else value > best.value):
            self.best, self.new_best = Best(monitor, float(value), epoch, step), True

    def _monitor(self, row: Mapping[str, Any]) -> tuple[str, str]:
        """The setting, or what a callback of the module's own looks at, or the usual names."""
        settings = self._job.settings
        if settings.monitor:
            return settings.monitor, settings.monitor_mode
        for callback in (
            *self._trainer.checkpoint_callbacks,
            *self._trainer.early_stopping_callbacks,
        ):
            if getattr(callback, "monitor", None):
                return str(callback.monitor), str(getattr(callback, "mode", "auto"))  # type: ignore[attr-defined]
        return next((name for name in FALLBACKS if name in row), FALLBACKS[-1]), "auto"
