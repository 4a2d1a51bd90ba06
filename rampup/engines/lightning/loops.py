"""Lightning's loops of a training, which call a Watcher between two steps.

All use of Lightning's private loops is in here. Lightning has no hook for the moment when a batch
is complete and the next one is not yet fetched, and that is the moment to save and to stop:
callbacks, validation and schedulers are done, and no random number of the next batch is drawn.
Lightning's handling of signals is switched off: rampup's own handler only sets a flag.
"""

from typing import Any, Protocol

from lightning.pytorch import Trainer
from lightning.pytorch.loops.evaluation_loop import _EvaluationLoop
from lightning.pytorch.loops.fetchers import _DataFetcher
from lightning.pytorch.loops.fit_loop import _FitLoop
from lightning.pytorch.loops.training_epoch_loop import _TrainingEpochLoop


class Watcher(Protocol):
    """What engine.py implements to be called by the loops."""

    def making_loaders(self, kind: str) -> None:
        """Called before the user's hooks make the loaders of that kind."""

    def attach(self, loaders: list[Any]) -> list[Any]:
        """Return what to use in place of the training loaders, which are made but not yet used."""

    def validation_loaders(self, loaders: list[Any]) -> None:
        """Called when the loaders of the validation are made."""

    def between_steps(self, resuming: bool) -> None:
        """Called before the next batch is fetched."""

    def epoch_ended(self) -> None:
        """Called after validation, hooks and metrics of an epoch."""


class _WatchedFit(_FitLoop):
    rampup: Watcher

    def setup_data(self) -> None:
        if self._combined_loader is None or self._should_reload_train_dl:
            self.rampup.making_loaders("train")
        super().setup_data()

    def _load_combined_loader_states(self) -> None:
        super()._load_combined_loader_states()
        assert self._combined_loader is not None
        self._combined_loader.flattened = self.rampup.attach(self._combined_loader.flattened)

    def on_advance_end(self) -> None:
        super().on_advance_end()
        self.rampup.epoch_ended()


class _WatchedEpoch(_TrainingEpochLoop):
    rampup: Watcher

    def advance(self, data_fetcher: _DataFetcher) -> None:
        accumulated = self.batch_progress.current.ready % self.trainer.accumulate_grad_batches
        if self.restarting or not accumulated:
            self.rampup.between_steps(self.restarting)
        ready = self.batch_progress.total.ready
        super().advance(data_fetcher)
        self._took_a_batch = self.batch_progress.total.ready > ready

    def on_advance_end(self, data_fetcher: _DataFetcher) -> None:
        """Count no step where Lightning, resumed behind a validation, takes no batch at first."""
        if self._took_a_batch or not self._skip_next_val:
            super().on_advance_end(data_fetcher)
        else:
            self._skip_next_val = False

    def _broadcast_sigterm_tensor(self) -> None:
        """Do nothing: our agreement replaces that of Lightning on a signal, once per batch."""


class _WatchedValidation(_EvaluationLoop):
    rampup: Watcher

    def setup_data(self) -> None:
        before = self._combined_loader
        if before is None or self._should_reload_val_dl:
            self.rampup.making_loaders("validation")
        super().setup_data()
        if self._combined_loader is not None and self._combined_loader is not before:
            self.rampup.validation_loaders(self._combined_loader.flattened)


def watch(trainer: Trainer, watcher: Watcher) -> None:
    """Let the loops of a trainer call the watcher from now on."""
    fit, epoch = trainer.fit_loop, trainer.fit_loop.epoch_loop
    loops: tuple[tuple[Any, type], ...] = (
        (fit, _WatchedFit),
        (epoch, _WatchedEpoch),
        (epoch.val_loop, _WatchedValidation),
    )
    for loop, watched in loops:
        loop.__class__ = watched  # with the settings that the Trainer gave it
        loop.rampup = watcher
    trainer._signal_connector.register_signal_handlers = lambda: None  # type: ignore[method-assign]


def batches_done(trainer: Trainer) -> int:
    """Return the number of batches of this epoch that are done."""
    return int(trainer.fit_loop.epoch_loop.batch_progress.current.ready)


def validation_loader(trainer: Trainer) -> tuple[Any, float]:
    """Return the first loader, and how many batches of it each rank takes."""
    loop: Any = trainer.fit_loop.epoch_loop.val_loop
    return loop._combined_loader.flattened[0], loop.max_batches[0]


def is_whole(trainer: Trainer) -> bool:
    """Return whether this epoch came to its last batch, and not to a limit of steps."""
    return bool(trainer.fit_loop.epoch_loop._num_ready_batches_reached())


def epochs_done(trainer: Trainer) -> int:
    progress: Any = trainer.fit_loop.epoch_progress.current
    return int(progress.processed)
