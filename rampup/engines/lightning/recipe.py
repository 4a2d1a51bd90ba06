"""A recipe of the torch engine under Lightning: `rampup run digits engine=lightning`.

engine.py wraps a Task in a Recipe: its model, loss, optimizer and data become a LightningModule.
The global batches, the schedule and the validation are those of the torch engine: each sample
counts once, on any number of ranks. It knows nothing about checkpoints.
"""

import warnings
from collections import deque
from collections.abc import Iterator
from typing import Any

import torch
from lightning.pytorch import LightningModule
from torch import Tensor
from torch.optim.lr_scheduler import LambdaLR

from rampup.core.metrics import lower_is_better
from rampup.data.order import permutation
from rampup.engines import parts
from rampup.engines.lightning import loops as lightning_loops
from rampup.engines.lightning.target import PRECISIONS
from rampup.engines.torch import device as torch_device
from rampup.engines.torch import parts as torch_parts
from rampup.engines.torch.evaluation import Evaluation
from rampup.engines.torch.normalisation import build_cut
from rampup.engines.torch.task import Task
from rampup.engines.torch.world import World
from rampup.errors import RampupError
from rampup.runtime.job import Best, Job
from rampup.runtime.storage import say

BEST = "rampup_best"
Piece = tuple[Any, int, int]
"""Samples, their number, and the number of samples of the whole global batch."""


class Recipe:
    """A recipe with the methods of Target, which the engine calls."""

    def __init__(self, task: Task, world: World, job: Job) -> None:
        self._task, self._world, self._job = task, world, job
        if task.settings.gradients == "flat":
            raise RampupError(
                "gradients=flat is for engine=torch: Lightning has DDP", "leave it out"
            )
        # the sums are those of all ranks already
        warnings.filterwarnings("ignore", message=".*sync_dist=True.*")

    def module(self) -> LightningModule:
        return RecipeModule(self._task, self._world, self._job)

    def data(self) -> None:
        """Return None: the module has its own loaders."""

    def classes(self) -> tuple[str, ...]:
        """Return no classes: a Classifier counts them in its own validation."""
        return ()

    def workers(self) -> str:
        return "own"

    def trainer(self) -> dict[str, Any]:
        settings = self._task.settings
        return {
            "max_epochs": settings.epochs,
            "max_steps": settings.max_steps or -1,
            "precision": PRECISIONS[settings.precision],
            "accumulate_grad_batches": settings.accumulate,
            "gradient_clip_val": settings.clip,
            "log_every_n_steps": settings.log_every,
            "num_sanity_val_steps": 0,
            "enable_model_summary": False,
        }


class RecipeModule(LightningModule):
    """A task as a LightningModule."""

    def __init__(self, task: Task, world: World, job: Job) -> None:
        super().__init__()
        self.task, self.world, self.settings = task, world, task.settings
        self.train_data, self.val_data = torch_parts.build_data(task, job)
        model = task.model()
        if self.settings.channels_last:
            model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.model, self.called = model, torch_parts.compile_model(model, self.settings)
        self.steps_per_epoch = -(-len(self.train_data) // self.settings.batch_size)
        self.ended_early = False
        self.best: Best | None = None
        """What the early stop knows; a checkpoint has it."""

    def on_fit_start(self) -> None:
        autocast = torch_device.autocast(self.settings.precision, self.device)
        self.evaluation = Evaluation(self.task, self.called, self.val_data, self.world, autocast)
        parts.check_monitor(self.settings.monitor, self.evaluation.metrics)
        self.cut = build_cut(self.task, self.model, self.train_data, self.world, autocast)

    def train_dataloader(self) -> "Pieces":
        return Pieces(self)

    def val_dataloader(self) -> list[int]:
        """Return one batch for all: the torch engine's evaluation reads the data itself."""
        return [0] if self.val_data is not None and len(self.val_data) else []

    def configure_optimizers(self) -> Any:
        optimizer = self.task.optimizer(self.model)
        schedule = parts.build_schedule(self.settings, self.steps_per_epoch, len(self.train_data))
        scheduler = {"scheduler": LambdaLR(optimizer, schedule.factor), "interval": "step"}
        return [optimizer], [scheduler]

    def training_step(self, batch: Piece, batch_idx: int) -> Tensor:
        """Weigh the loss, so that the mean over ranks and pieces is the mean over the samples."""
        samples, own, whole = batch
        if own == 0:  # a batch in which this rank has no part, or fewer pieces
            sums = [parameter.sum() for parameter in self.model.parameters()]
            return torch.stack(sums).sum() * 0.0
        moved = torch_device.move(samples, self.device, self.settings.channels_last)
        loss = self.task.loss(self.called, self.task.augment(moved, self.current_epoch + 1))
        weight = own * self.world.size * self.settings.accumulate / whole
        return loss if weight == 1.0 else loss * weight

    def validation_step(self, batch: int, batch_idx: int) -> None:
        self._validate()

    def on_train_epoch_end(self) -> None:
        """Validate where `max_steps` ends a run within an epoch, which Lightning does not."""
        self.ended_early = not lightning_loops.is_whole(self.trainer)
        if self.ended_early:
            self._validate()

    def _validate(self) -> None:
        found = self.evaluation.run()
        self.log_dict(found, batch_size=1)
        monitor, target = self.settings.monitor, self.settings.target
        value, epoch = found.get(monitor), self.current_epoch + 1
        if value is None:
            return
        lower = lower_is_better(monitor, self.settings.monitor_mode)
        if target is not None and parts.reaches(value, target, lower):
            self.trainer.should_stop = True
        early_stop = parts.EarlyStop(self.settings, lower)
        is_first = self.best is None and value == value  # NaN is never the best
        if is_first or (self.best and parts.is_better(value, self.best.value, lower)):
            new = Best(monitor, value, epoch, self.trainer.global_step)
            self.best = early_stop.mark(new, self.best)
        if early_stop.is_due(self.best, epoch):
            if self.world.rank == 0:
                say(early_stop.describe(self.best, monitor))
            self.trainer.should_stop = True

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint[BEST] = parts.best_to_record(self.best)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.best = parts.best_from_record(checkpoint.get(BEST))

    def transfer_batch_to_device(
        self, batch: Any, device: torch.device, dataloader_idx: int
    ) -> Any:
        return batch  # the step does it, by the rules of the torch engine


class Pieces:
    """This rank's part of every global batch of an epoch, cut for accumulation."""

    def __init__(self, module: RecipeModule) -> None:
        self._module, self._data = module, module.train_data

    def __len__(self) -> int:
        steps: int = self._module.steps_per_epoch * self._module.settings.accumulate
        return steps

    def __iter__(self) -> "PassOverPieces":
        return PassOverPieces(self._module)


class PassOverPieces(Iterator[Piece]):
    """One epoch of pieces. Those that are skipped are not read."""

    def __init__(self, module: RecipeModule) -> None:
        settings, self._data = module.settings, module.train_data
        size = len(self._data)
        make = getattr(self._data, "order", None)
        self._order = (
            make(settings.seed, settings.batch_size)(module.current_epoch + 1)
            if make
            else permutation(settings.seed, module.current_epoch + 1, size)
        )
        self._is_begun = False
        self._places: deque[tuple[int, int, int]] = deque()
        """The pieces to come, each with the samples of its whole batch."""
        for low in range(0, size, settings.batch_size):
            high = min(low + settings.batch_size, size)
            found = module.cut.pieces_of(low, high, module.world.rank)
            # Lightning counts as many in every step
            found += [(high, high)] * (settings.accumulate - len(found))
            self._places.extend((first, last, high - low) for first, last in found)

    def skip(self, pieces: int) -> None:
        """Leave out the pieces that were trained before this attempt."""
        for _ in range(min(pieces, len(self._places))):
            self._places.popleft()

    def __next__(self) -> Piece:
        plan = getattr(self._data, "plan", None)
        if plan and not self._is_begun:  # data that is read while the steps compute
            places = list(self._places)
            plan(self._order[first:last] for first, last, _ in places if first < last)
        self._is_begun = True
        if not self._places:
            raise StopIteration
        first, last, whole = self._places.popleft()
        if first == last:
            return None, 0, whole
        indices = torch.from_numpy(self._order[first:last])
        return self._data.batch(indices), last - first, whole
