"""What Lightning's Trainer gets from rampup: who the ranks are, how files are written, where
metrics go, who watches.

All four are Lightning's own public extension points. None of them looks at a variable of a
scheduler.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.loggers.logger import _DummyExperiment, rank_zero_experiment
from lightning.fabric.plugins.environments.cluster_environment import ClusterEnvironment
from lightning.pytorch import Callback
from lightning.pytorch.loggers.logger import Logger
from lightning.pytorch.plugins.io import TorchCheckpointIO

from rampup.rundir.records import sync
from rampup.runtime.checkpoints.store import CheckpointStore
from rampup.runtime.context import RankContext
from rampup.runtime.storage import guard_writes

State = dict[str, Any]


class Rare(Callback):
    """A callback that has no part in a step. Lightning passes over a hook that can't be called,
    which saves 5 us."""

    on_train_batch_start: Any = None
    on_train_batch_end: Any = None
    on_before_zero_grad: Any = None
    on_before_backward: Any = None
    on_after_backward: Any = None
    on_before_optimizer_step: Any = None


class RankEnvironment(ClusterEnvironment):
    """The ranks as rank.py has started them: with it Lightning starts none, and does not requeue a
    job by itself."""

    def __init__(self, context: RankContext) -> None:
        super().__init__()
        self._context = context

    @property
    def creates_processes_externally(self) -> bool:
        return True

    @property
    def main_address(self) -> str:
        return os.environ.get("MASTER_ADDR", "127.0.0.1")

    @property
    def main_port(self) -> int:
        return int(os.environ.get("MASTER_PORT", "0"))

    @staticmethod
    def detect() -> bool:
        return False

    def world_size(self) -> int:
        return self._context.world_size

    def set_world_size(self, size: int) -> None:
        """It is what it is."""

    def global_rank(self) -> int:
        return self._context.rank

    def set_global_rank(self, rank: int) -> None:
        """It is what it is."""

    def local_rank(self) -> int:
        return self._context.local_rank

    def node_rank(self) -> int:
        return self._context.rank // self._context.local_world_size


class SafeCheckpointIO(TorchCheckpointIO):
    """Lightning's checkpoints: those of the engine are handed over to it, those of a module's own
    ModelCheckpoint are written beside their target and shown by one rename, so that a kill leaves
    the one before as it was."""

    def __init__(self, store: CheckpointStore) -> None:
        self._store = store
        self._tidied: set[Path] = set()

    def save_checkpoint(self, checkpoint: State, path: Any, storage_options: Any = None) -> None:
        if isinstance(storage_options, TakeOver):
            storage_options.take(checkpoint)
            return
        self._store.check_newest()
        target = Path(path)
        mark = f"tmp-{self._store.run.id}"  # a folder of the user's own may be that of several runs
        beside = target.with_name(f".{target.name}.{mark}-{self._store.attempt}")
        with guard_writes(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            self._tidy(target.parent, mark)
            try:
                with open(beside, "wb") as file:
                    torch.save(checkpoint, file)
                    file.flush()
                    os.fsync(file.fileno())
                beside.rename(target)
            finally:
                beside.unlink(missing_ok=True)
            sync(target.parent)

    def _tidy(self, folder: Path, mark: str) -> None:
        """Once in a folder: what earlier attempts of this run were writing when they were
        killed."""
        if folder not in self._tidied:
            self._tidied.add(folder)
            for left in folder.glob(f".*.{mark}-*"):
                left.unlink(missing_ok=True)


class TakeOver:
    """Given to `Trainer.save_checkpoint` in place of a place: who gets the state."""

    def __init__(self, take: Callable[[State], None]) -> None:
        self.take = take


class RunLogger(Logger):
    """Everything that a module logs goes to `log`; `experiment` is a SummaryWriter where
    TensorBoard is installed."""

    def __init__(
        self, folder: Path, tensorboard: Path, log: Callable[[Mapping[str, Any]], None]
    ) -> None:
        super().__init__()
        self._folder, self._log = folder, log
        self._experiment = _LazyWriter(tensorboard)

    @property
    def name(self) -> str:
        return ""

    @property
    def version(self) -> str:
        return ""

    @property
    def save_dir(self) -> str:
        """Where a ModelCheckpoint of the module's own puts its files when it names no place."""
        return str(self._folder)

    @property
    @rank_zero_experiment
    def experiment(self) -> Any:
        """For pictures and histograms of a module's own:
        `self.logger.experiment.add_image(...)`."""
        return self._experiment

    def log_metrics(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        self._log(metrics)

    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
        """The settings of the run are in config.json already."""

    def finalize(self, status: str) -> None:
        self._experiment.rampup_close()


class _LazyWriter:
    """A SummaryWriter, made when it is first used: Lightning looks at `experiment` in every run."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._writer: Any = None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if self._writer is None:
            try:
                from torch.utils.tensorboard import SummaryWriter
            except ImportError:  # TensorBoard is not installed: what would go there is left out
                self._writer = _DummyExperiment()
            else:
                self._writer = SummaryWriter(str(self._folder), filename_suffix=".module")
        return getattr(self._writer, name)

    def rampup_close(self) -> None:
        if self._writer is not None:
            self._writer.close()
