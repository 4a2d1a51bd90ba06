"""The lightning engine: a user's LightningModule, unchanged, on Lightning's own Trainer.

The worker calls `load_target` and `train` on every rank; the torch engine calls `train` for a
recipe with engine=lightning. rampup decides who the ranks are, when to save and to stop, and where
metrics go. Between two steps all ranks agree whether to save or to stop; a later attempt continues
after the newest sound checkpoint, also in the middle of an epoch. It never parses a scheduler's
variables, and Lightning's own requeueing stays off.
"""

import logging
import warnings
from collections.abc import Mapping
from functools import partial
from importlib.metadata import version
from typing import Any

import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch import LightningModule, Trainer, seed_everything
from lightning.pytorch.strategies import DDPStrategy, ParallelStrategy

from rampup.core import hardware
from rampup.core.settings import Settings
from rampup.engines import parts
from rampup.engines.lightning import loops as lightning_loops
from rampup.engines.lightning import plugins
from rampup.engines.lightning.insight import InsightCallback
from rampup.engines.lightning.loaders import Loaders
from rampup.engines.lightning.recipe import Recipe, RecipeModule
from rampup.engines.lightning.rows import Rows
from rampup.engines.lightning.state import FILE, LoaderPositions, State
from rampup.engines.lightning.target import Target
from rampup.engines.torch import device as torch_device
from rampup.engines.torch.task import Task
from rampup.engines.torch.world import World
from rampup.errors import RampupError
from rampup.rundir.checkpoints import Checkpoint, read_checkpoint
from rampup.rundir.files import checkpoint_name
from rampup.rundir.records import Record
from rampup.runtime.checkpoints.store import find_differences
from rampup.runtime.job import Job, TrainingResult
from rampup.runtime.stop import SUPERSEDED
from rampup.runtime.storage import say

ACCELERATORS = {"cpu": "cpu", "cuda": "gpu", "mps": "mps"}
PRECISIONS = {"1": "fp16", "b": "bf16"}
"""By the first letter of Lightning's names, such as 16-mixed."""
UNTRUE_HERE = (
    ".*dataloader is not resumable.*",
    ".*does not have many workers.*",
    ".*DataLoader will create.*",
    ".*smaller than the logging interval.*",
    ".*`srun` command is available.*",
    ".*LeafSpec.*",
)
"""Warnings that are not true under rampup: it handles these itself, Lightning counts all CPUs of a
machine, or they are about Lightning's own code."""
UNUSED_PARAMETERS = "finished reduction in the prior iteration"


class Stopped(Exception):
    """Leaves Lightning's loops when all ranks agreed to stop, and everything is saved."""


def load_target(config: Record, settings: Settings) -> Target:
    """Import the user's classes."""
    return Target(config, settings)


def train(job: Job, task: Target | Task) -> TrainingResult:
    """Train to the end, or until asked to stop. The outcome is the same on every rank."""
    settings, context = job.settings, job.context
    if context.threads:
        torch.set_num_threads(context.threads)
    device = torch_device.choose(settings.device, context, job.gpus_per_node)
    if device.type == "cpu":
        hardware.disable_malloc_trim()
    silence_lightning()
    with World(context, device, settings.get("backend", "auto")) as world:
        built = Recipe(task, world, job) if isinstance(task, Task) else task
        precision = built.trainer()["precision"][:1]
        torch_device.check_precision(PRECISIONS.get(precision, "fp32"), device)
        seed_everything(settings.seed, workers=True, verbose=False)
        try:
            return Training(job, world, built).run()
        except MisconfigurationException as error:
            text = str(error).splitlines()[0]
            raise RampupError(
                f"Lightning: {text}", "docs/lightning.md lists what rampup sets, and what you set"
            ) from error
        except RuntimeError as error:
            if UNUSED_PARAMETERS not in str(error):
                raise
            raise RampupError(
                "some parameters had no part in the loss of a step",
                "strategy=ddp_find_unused_parameters_true",
            ) from error


def silence_lightning() -> None:
    """Keep only those messages of Lightning that are worth a line in a log."""
    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.getLogger("lightning.pytorch.callbacks.model_summary").setLevel(logging.INFO)
    for words in UNTRUE_HERE:
        warnings.filterwarnings("ignore", message=words)


class Training(plugins.NoBatchHooks):
    """One rank's side of a run: the Trainer, and what its loops and hooks call."""

    def __init__(self, job: Job, world: World, task: Target | Recipe) -> None:
        self.job, self.world = job, world
        run = job.checkpoints.run
        self.found = self._find_checkpoint()
        self.module, self.data = task.module(), task.data()
        arguments = {**task.trainer(), **self._placement()}
        if job.smoke:  # a trial of the job script: each attempt takes one step
            arguments["max_steps"] = self._first_step() + 1
        self.loaders = Loaders(job, world, task.workers())
        self.insight = InsightCallback(job, world, task.classes(), self._log)
        folder = run.path / "lightning"
        self.trainer = Trainer(
            **arguments,
            callbacks=[self.insight, self],
            plugins=[
                plugins.RankEnvironment(job.context),
                plugins.SafeCheckpointIO(job.checkpoints),
            ],
            logger=plugins.RunLogger(folder, run.tensorboard, self._log),
            profiler=plugins.build_profiler(job),
            default_root_dir=folder,
            enable_checkpointing=False,
            enable_progress_bar=False,
        )
        self._place_ranks()
        trainer = self.trainer
        self.rows = Rows(job, world, trainer, arguments["log_every_n_steps"])
        if self.found:
            self.rows.best = parts.best_from_record(self.found.meta.get("best"))
        self.positions = LoaderPositions(
            world.device,
            partial(lightning_loops.batches_done, trainer),
            partial(lightning_loops.epochs_done, trainer),
        )
        self.state = State(trainer, world, self.positions, self.rows)
        self.facts = self._facts()
        self.begun = False
        self.checked_at = 0
        """The step of the last question whether a checkpoint is due."""
        self.fast = bool(arguments.get("fast_dev_run"))
        self.never = job.saving.never or self.fast
        self.flags = torch.zeros(4, device=world.device)
        lightning_loops.watch(trainer, self)

    def _placement(self) -> dict[str, Any]:
        """Return the strategy, and as many devices as there are ranks."""
        context, wish = self.job.context, self.job.settings.get("strategy", "auto")
        if context.world_size > 1 and isinstance(self.module, RecipeModule):
            # its evaluation averages them, as under the torch engine
            wish = DDPStrategy(broadcast_buffers=False)
        elif context.world_size > 1 and wish == "auto":
            # A module that steps its own optimizers rarely uses all parameters in each of them.
            automatic = self.module.automatic_optimization
            wish = "ddp" if automatic else "ddp_find_unused_parameters_true"
        return {
            "strategy": wish,
            "accelerator": ACCELERATORS[self.world.device.type],
            "devices": 1,
            "num_nodes": context.world_size,
        }

    def _place_ranks(self) -> None:
        """Set the devices, because each rank has its own already.

        Lightning would count those that a rank sees, and where Slurm has bound one GPU to each
        task, that is one on a node of several ranks.
        """
        strategy, context = self.trainer.strategy, self.job.context
        if isinstance(strategy, ParallelStrategy):
            strategy.parallel_devices = [self.world.device] * context.local_world_size
            strategy.num_nodes = context.world_size // context.local_world_size  # type: ignore[attr-defined]

    # the run --------------------------------------------------------------------------------------

    def run(self) -> TrainingResult:
        job = self.job
        job.events.write("start", **self.facts)
        # the training was complete, and only its end was not recorded
        if self.found and self.found.meta.get("done"):
            return TrainingResult(self.rows.best, self.found.name, step=self.found.step)
        path = job.checkpoints.file(self._first_step(), FILE) if self.found else None
        stopped = False
        try:
            self.trainer.fit(
                self.module,
                datamodule=self.data,
                ckpt_path=path,
                weights_only=False if path else None,
            )
        except Stopped:
            stopped = True
            self.insight.show()
        finally:
            job.saving.end()
        if not self.begun:  # Lightning passes over a training without batches
            raise RampupError(
                "there was nothing to train: no batch came from the training data",
                "check train_dataloader(), and limits such as limit_train_batches",
            )
        job.progress.end()
        step = self.trainer.global_step
        if stopped:
            job.stop.acknowledge(None if self.never else step)
        plugins.report_profile(job)
        return TrainingResult(
            self.rows.best, None if self.never else checkpoint_name(step), stopped, step
        )

    def _find_checkpoint(self) -> Checkpoint | None:
        """Return the newest sound checkpoint on every rank."""
        step, newest = parts.agree_on_checkpoint(self.job, self.world)
        if newest or step < 0:
            return newest
        return read_checkpoint(self.job.checkpoints.run, step)

    def _first_step(self) -> int:
        return self.found.step if self.found else 0

    # what the loops call --------------------------------------------------------------------------

    def making_loaders(self, kind: str) -> None:
        self.positions.begin_making(kind)

    def attach(self, loaders: list[Any]) -> list[Any]:
        self.loaders.configure(loaders, training=True)
        return self.positions.attach(loaders)

    def validation_loaders(self, loaders: list[Any]) -> None:
        self.loaders.configure(loaders, training=False)

    def between_steps(self, resuming: bool) -> None:
        job, step = self.job, self.trainer.global_step
        job.phases.mark("compute")
        if resuming:
            self.state.restore_rank()
            return
        self.rows.step_ended(step)
        stop, save, hold = self._agree(step)
        if stop:
            self._save(step, last=True)
            raise Stopped
        if save:
            self._save(step)
        elif hold:
            self._hold(step)

    def epoch_ended(self) -> None:
        if self.fast:  # then Lightning calls no logger
            self.rows.log(self.trainer.callback_metrics)
        whole = lightning_loops.is_whole(self.trainer)
        self.rows.epoch_ended(self.trainer.global_step, self.trainer.current_epoch, whole)
        self.loaders.epoch_ended()

    def _log(self, metrics: Mapping[str, Any]) -> None:
        self.rows.log(metrics)

    # hooks of a callback --------------------------------------------------------------------------

    def on_load_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        self.state.load(checkpoint)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        job, step = self.job, trainer.global_step
        self.begun = True
        if self.found:
            job.saving.saved = step
            self._report_resume(step)
        self.loaders.note_lone_sample(pl_module, trainer.num_training_batches)
        if not trainer.enable_validation:
            name = type(pl_module).__name__
            hint = "add validation_step() and val_dataloader()"
            self._say(f"note: {name} has no validation: {hint}")
        job.progress.begin(self._all_steps(), self._epochs(), self.rows.loss.epoch_mean, step)
        # epochs are counted here: their steps are not known for every loader
        job.saving.cadence.begin(0)
        job.stop.arm()
        job.phases.mark("start")
        self.rows.begin(step)
        self.checked_at = step

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        self.job.phases.mark("data")
        self.rows.batch_begins()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self.rows.batch_ended(outputs, batch, trainer.global_step)
        self.job.phases.mark("compute")

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.job.phases.mark("start" if trainer.sanity_checking else "compute")

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.job.phases.mark("evaluation")

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.rows.epoch_ends()

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.job.phases.mark("compute")
        self._save(trainer.global_step, last=True, done=True)

    # saving ---------------------------------------------------------------------------------------

    def _agree(self, step: int) -> tuple[bool, bool, bool]:
        """Return whether any rank votes to stop, to save, and to hold the best, on every rank."""
        stop, saving = self.job.stop, self.job.saving
        hold, self.rows.new_best = self.rows.new_best, False
        votes = (
            bool(stop.reason),
            saving.wants_checkpoint() or self._is_due(step),
            hold,
            stop.reason == SUPERSEDED,
        )
        if self.world.size > 1:
            self.flags.copy_(torch.tensor(votes))
            torch.distributed.all_reduce(self.flags, torch.distributed.ReduceOp.MAX)
            votes = tuple(bool(flag) for flag in self.flags.tolist())  # type: ignore[assignment]
            self.job.phases.mark("communication")
        if votes[3]:
            raise parts.superseded(self.job.context.attempt)
        return votes[:3]

    def _is_due(self, step: int) -> bool:
        """Return whether a checkpoint is due by steps (a batch may take several) or by epochs."""
        cadence, last = self.job.saving.cadence, self.checked_at
        self.checked_at = step
        if cadence.every.unit == "epochs":
            epoch = self.trainer.current_epoch
            begins = lightning_loops.batches_done(self.trainer) == 0
            return begins and epoch > 0 and epoch % cadence.every.number == 0
        return any(cadence.due_at(each) for each in range(last + 1, step + 1))

    def _save(self, step: int, last: bool = False, done: bool = False) -> None:
        if self.never:
            return
        parts.save(self.job, lambda: self.state.take(step, self._meta(done)), self.rows.best, last)
        if last:  # no rank leaves before it is on the disk
            self.world.wait()
        self.job.phases.mark("saving")

    def _hold(self, step: int) -> None:
        if self.never:
            return
        parts.hold_best(self.job, lambda: self.state.take(step, self._meta(False)))
        self.job.phases.mark("saving")

    def _meta(self, done: bool) -> dict[str, Any]:
        return {**self.facts, "best": parts.best_to_record(self.rows.best), "done": done}

    # what is reported -----------------------------------------------------------------------------

    def _report_resume(self, step: int) -> None:
        assert self.found is not None
        why_not = find_differences(self.found.meta, self.facts)
        if lightning_loops.batches_done(self.trainer):
            why_not += self.positions.inexact_reasons()
        if self.world.device.type != "cpu":
            why_not.append(parts.GPU_SUMS)
        elif self.world.size > 2:
            why_not.append("ddp sums in another order after it starts")
        self._say(parts.record_resume(self.job, step, why_not))

    def _say(self, line: str) -> None:
        if self.world.rank == 0:
            say(line)

    def _epochs(self) -> int | None:
        return self.trainer.max_epochs if (self.trainer.max_epochs or -1) > 0 else None

    def _all_steps(self) -> int | None:
        """Return the steps of the run, or None if they are unknown.

        They are for data without a length, and for a module that steps its optimizers itself.
        """
        if not self.module.automatic_optimization:
            return None
        steps = self.trainer.estimated_stepping_batches
        return int(steps) if 0 < steps < float("inf") else None  # -1: a stream without a limit

    def _facts(self) -> dict[str, Any]:
        return parts.resume_facts(
            world_size=self.world.size,
            threads=torch.get_num_threads(),
            device=str(self.world.device),
            gradients=type(self.trainer.strategy).__name__,
            packages={"torch": str(torch.__version__), "lightning": version("lightning")},
        )
