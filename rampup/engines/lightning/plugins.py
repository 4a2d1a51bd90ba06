"""What rampup gives to Lightning's Trainer: ranks, checkpoint files, logger, callbacks, profiler.

engine.py builds them. All are public extension points of Lightning. None of them reads a variable
of a scheduler.
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
from lightning.pytorch.profilers import AdvancedProfiler, Profiler, PyTorchProfiler, SimpleProfiler

from rampup.engines.lightning.pickles import load_checkpoint
from rampup.rundir.records import sync
from rampup.runtime.checkpoints.store import CheckpointStore
from rampup.runtime.context import RankContext
from rampup.runtime.job import Job
from rampup.runtime.storage import guard_writes, say

State = dict[str, Any]
PROFILERS: dict[str, type[Profiler]] = {
    "simple": SimpleProfiler,
    "advanced": AdvancedProfiler,
    "pytorch": PyTorchProfiler,
}
PROFILE = "profile"


class NoBatchHooks(Callback):
    """A callback without hooks in a step. Lightning skips a hook that is None, which saves 5 us."""

    on_train_batch_start: Any = None
    on_train_batch_end: Any = None
    on_before_zero_grad: Any = None
    on_before_backward: Any = None
    on_after_backward: Any = None
    on_before_optimizer_step: Any = None


class RankEnvironment(ClusterEnvironment):
    """The ranks that rank.py has started: Lightning starts none, and does not requeue a job."""

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
        """Do nothing: rank.py has decided it."""

    def global_rank(self) -> int:
        return self._context.rank

    def set_global_rank(self, rank: int) -> None:
        """Do nothing: rank.py has decided it."""

    def local_rank(self) -> int:
        return self._context.local_rank

    def node_rank(self) -> int:
        return self._context.rank // self._context.local_world_size


class SafeCheckpointIO(TorchCheckpointIO):
    """How Lightning writes and reads checkpoints.

    Those of the engine are handed over to it. Those of a module's own ModelCheckpoint are written
    beside their target and appear by one rename, so that a kill leaves the one before as it was.
    """

    def __init__(self, store: CheckpointStore) -> None:
        self._store = store
        self._cleaned: set[Path] = set()

    def save_checkpoint(self, checkpoint: State, path: Any, storage_options: Any = None) -> None:
        if isinstance(storage_options, StateReceiver):
            storage_options.receive(checkpoint)
            return
        self._store.check_newest()
        target = Path(path)
        mark = f"tmp-{self._store.run.id}"  # several runs may share a user's folder
        beside = target.with_name(f".{target.name}.{mark}-{self._store.attempt}")
        with guard_writes(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            self._remove_leftovers(target.parent, mark)
            try:
                with open(beside, "wb") as file:
                    torch.save(checkpoint, file)
                    file.flush()
                    os.fsync(file.fileno())
                beside.rename(target)
            finally:
                beside.unlink(missing_ok=True)
            sync(target.parent)

    def load_checkpoint(
        self, path: Any, map_location: Any = "cpu", weights_only: bool | None = None
    ) -> State:
        """Load plain data, whatever Lightning asks for; Python objects only from a file that
        is yours alone."""
        usual = super().load_checkpoint
        return load_checkpoint(Path(path), lambda plain: usual(path, map_location, plain))

    def _remove_leftovers(self, folder: Path, mark: str) -> None:
        """Remove, once in a folder, what earlier attempts were writing when they were killed."""
        if folder not in self._cleaned:
            self._cleaned.add(folder)
            for left in folder.glob(f".*.{mark}-*"):
                left.unlink(missing_ok=True)


class StateReceiver:
    """Gets the state from `Trainer.save_checkpoint`, given as its storage options."""

    def __init__(self, receive: Callable[[State], None]) -> None:
        self.receive = receive


class RunLogger(Logger):
    """Passes everything that a module logs to `log`.

    `experiment` is a SummaryWriter where TensorBoard is installed.
    """

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
        """Return where the module's own ModelCheckpoint puts its files by default."""
        return str(self._folder)

    @property
    @rank_zero_experiment
    def experiment(self) -> Any:
        """Return the writer for a module's own pictures and histograms.

        Modules call `self.logger.experiment.add_image(...)`.
        """
        return self._experiment

    def log_metrics(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        self._log(metrics)

    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
        """Do nothing: the settings of the run are in config.json already."""

    def finalize(self, status: str) -> None:
        self._experiment.rampup_close()


class _LazyWriter:
    """A SummaryWriter, made when it is first used: Lightning reads `experiment` in every run."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._writer: Any = None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if self._writer is None:
            try:
                from torch.utils.tensorboard import SummaryWriter
            except ImportError:  # TensorBoard is not installed
                self._writer = _DummyExperiment()
            else:
                self._writer = SummaryWriter(str(self._folder), filename_suffix=".module")
        return getattr(self._writer, name)

    def rampup_close(self) -> None:
        if self._writer is not None:
            self._writer.close()


# the profiler -------------------------------------------------------------------------------------


def build_profiler(job: Job) -> Profiler | None:
    """Build the profiler of `profiler=simple|advanced|pytorch`, which rank 0 alone has."""
    wish = job.settings.get("profiler")
    if not wish or job.context.rank != 0:
        return None
    return PROFILERS[wish](dirpath=_attempt_folder(job), filename=PROFILE)


def report_profile(job: Job) -> None:
    """Report where the tables of the profiler are, if there are any."""
    if job.context.rank != 0:
        return
    for path in sorted(_attempt_folder(job).glob(f"*{PROFILE}*.txt")):
        job.events.write("profile", file=path.name)
        say(f"profile: {path}")


def _attempt_folder(job: Job) -> Path:
    return job.checkpoints.run.attempt(job.context.attempt).path
