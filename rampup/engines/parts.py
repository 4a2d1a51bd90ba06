"""The parts that all engines share: running loss, seeds, facts, and what they refuse.

The engines of torch, Lightning and Keras hand over plain numbers, names and arrays, so that a rule
or a message is written once. Nothing in here imports a framework, knows a model or takes a step.
"""

import importlib
import os
import platform
import random
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from rampup import __version__
from rampup.core import hardware
from rampup.core.settings import Settings
from rampup.engines.schedule import Schedule as Schedule
from rampup.engines.schedule import build_schedule as build_schedule
from rampup.errors import LostPeer, RampupError, Superseded, nearest
from rampup.rundir.checkpoints import Checkpoint
from rampup.rundir.records import Record
from rampup.runtime.checkpoints.saving import Snapshot
from rampup.runtime.checkpoints.store import format_resumed
from rampup.runtime.job import Best, Job
from rampup.runtime.storage import say

RANK_STRIDE = 1_000_003
"""The distance between the seeds of two ranks, so that runs with seeds 1, 2, 3 ... share none."""
AGREE_EVERY = 10
"""On a GPU the votes are read every so many steps, because reading waits for all earlier steps."""
GPU_SUMS = "sums on a GPU come in any order"


class Ranks(Protocol):
    """The ranks of a run as one group."""

    rank: int
    size: int

    def agree(self, number: int) -> int:
        """Return the number of rank 0 on every rank."""

    def wait(self) -> None:
        """Return when all ranks have called it."""


# the user's code and settings ---------------------------------------------------------------------


def load_entry(config: Record) -> Any:
    """Import a recipe and return what its `entry` names, such as `train:Mnist`."""
    module_name, _, name = config["entry"].partition(":")
    if config.get("builtin"):
        module = importlib.import_module(f"rampup.recipes.{config['recipe']}.{module_name}")
    else:
        sys.path.insert(0, config["folder"])
        module = importlib.import_module(module_name)
    if not hasattr(module, name):
        known = [each for each, value in vars(module).items() if isinstance(value, type)]
        raise RampupError(
            f"recipe {config['recipe']}: {module_name}.py has no {name!r}", nearest(name, known)
        )
    return getattr(module, name)


def given_settings(config: Record, settings: Settings) -> dict[str, Any]:
    """Return the settings that the user has given; all others are defaults."""
    origins = config.get("origins", {})
    return {
        key: settings[key]
        for key in settings
        if origins.get(f"train.{key}", "default") != "default"
    }


def check_monitor(monitor: str, metrics: Sequence[str]) -> None:
    """Refuse a monitor that is not among the metrics of the validation."""
    known = ["train_loss", *metrics]
    if monitor in known:
        return
    hint = "monitor=train_loss: there is no validation data"
    if metrics:
        hint = nearest(monitor, known)
    raise RampupError(f"monitor={monitor} is not a metric of this recipe", hint)


def is_better(value: float, best: float, lower: bool) -> bool:
    """Return whether a value beats the best one; NaN never does."""
    return value < best if lower else value > best


def reaches(value: float, target: float, lower: bool) -> bool:
    """Return whether a value is as good as the target, or better."""
    return value <= target if lower else value >= target


class EarlyStop:
    """When a training ends because it does not improve: the settings `patience` and `min_delta`.

    What it needs to know is in the Best of the run, which every checkpoint has.
    """

    def __init__(self, settings: Settings, lower: bool) -> None:
        self._patience: int | None = settings.get("patience")
        self._min_delta: float = settings.get("min_delta", 0.0)
        self._lower = lower

    def mark(self, found: Best, before: Best | None) -> Best:
        """Return a new best value with the last improvement that was large enough."""
        if self._patience is None:
            return found
        mark = before.mark if before else None
        if before is None or mark is None:
            return replace(found, mark=found.value, mark_epoch=found.epoch)
        wanted = mark - self._min_delta if self._lower else mark + self._min_delta
        if is_better(found.value, wanted, self._lower):
            return replace(found, mark=found.value, mark_epoch=found.epoch)
        return replace(found, mark=mark, mark_epoch=before.mark_epoch)

    def is_due(self, best: Best | None, epoch: int) -> bool:
        """Return whether a run ends after this epoch; one that had only NaN does, too."""
        since = best.mark_epoch if best else 0
        return self._patience is not None and epoch - since >= self._patience

    def describe(self, best: Best | None, monitor: str) -> str:
        """Return the line for people who wonder why it ended."""
        where = f"epoch {best.mark_epoch}" if best else "the start"
        by = f" by {self._min_delta:g}" if self._min_delta else ""
        return f"stopped early: {monitor} has not improved{by} since {where}"


# the loss -----------------------------------------------------------------------------------------


class RunningLoss(ABC):
    """The mean training loss since the epoch began and since the last row.

    An engine adds up in float64 on its own device: a step only adds, and only reading the sum waits
    for a GPU.
    """

    samples = 0
    """The number of samples since the epoch began."""
    _row_sum, _row_samples = 0.0, 0

    @abstractmethod
    def _read_sum(self) -> float: ...

    @abstractmethod
    def _write_sum(self, value: float) -> None: ...

    def restart(self) -> None:
        """Begin an epoch."""
        self.load({"sum": 0.0, "samples": 0, "row_sum": 0.0, "row": 0})

    def state(self) -> dict[str, float]:
        """Return what a later attempt needs to continue in the middle of an epoch."""
        return {
            "sum": self._read_sum(),
            "samples": self.samples,
            "row_sum": self._row_sum,
            "row": self._row_samples,
        }

    def load(self, state: Mapping[str, float]) -> None:
        self._write_sum(state["sum"])
        self.samples, self._row_samples = int(state["samples"]), int(state["row"])
        self._row_sum = state["row_sum"]

    def epoch_mean(self) -> float:
        return self._read_sum() / max(1, self.samples)

    def row_mean(self) -> float:
        """Return the mean since the last call."""
        total = self._read_sum()
        mean = (total - self._row_sum) / (self.samples - self._row_samples)
        self._row_sum, self._row_samples = total, self.samples
        return mean


# random numbers -----------------------------------------------------------------------------------


def rank_seed(seed: int, rank: int) -> int:
    """Return the seed of what may differ between ranks, such as dropout."""
    return seed + RANK_STRIDE * (rank + 1)


def host_random_state() -> tuple[NDArray[np.uint32], NDArray[np.uint32], NDArray[np.float64]]:
    """Return the state of numpy's and of Python's generator as three arrays.

    They are numpy's 624 words, Python's 625 words, and five more numbers of both.
    """
    _, keys, position, has_gauss, gauss = np.random.get_state(legacy=True)
    _, words, next_gauss = random.getstate()
    has_next = float(next_gauss is not None)
    rest = [float(position), float(has_gauss), float(gauss), has_next, next_gauss or 0.0]
    return np.asarray(keys, np.uint32), np.asarray(words, np.uint32), np.array(rest, np.float64)


def set_host_random_state(keys: NDArray[Any], words: NDArray[Any], rest: NDArray[Any]) -> None:
    """Restore what host_random_state has returned."""
    position, has_gauss, gauss, has_next, next_gauss = rest.tolist()
    np.random.set_state(("MT19937", keys.astype(np.uint32), int(position), int(has_gauss), gauss))
    random.setstate((3, tuple(words.tolist()), next_gauss if has_next else None))


# checkpoints --------------------------------------------------------------------------------------


def resume_facts(
    world_size: int,
    threads: int,
    device: str,
    gradients: str,
    packages: Mapping[str, str],
    more: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return what a resumed run must share with this one to be equal bit for bit."""
    return {
        "world_size": world_size,
        "threads": threads,
        **(more or {}),
        "device": device,
        "gradients": gradients,
        "cpu": hardware.cpu_model(),
        "versions": {"rampup": __version__, **packages, "python": platform.python_version()},
    }


def agree_on_checkpoint(job: Job, world: Ranks) -> tuple[int, Checkpoint | None]:
    """Return the step of the newest sound checkpoint, or -1, and on rank 0 the checkpoint itself.

    One rank decides: two that find different checkpoints would train different models as one.
    """
    store, newest = job.checkpoints, None
    if world.rank == 0:
        store.take_over()
        newest = store.latest()
    step = world.agree(newest.step if newest else -1)
    if step < 0 and job.smoke and job.context.attempt > 1:
        raise RampupError(
            "the second attempt of the smoke test found no checkpoint of the first",
            "rampup show --checkpoints --verify",
        )
    return step, newest


def record_resume(job: Job, step: int, why_not: list[str]) -> str:
    """Write the event of a resume and return the line that people read."""
    job.events.write("resumed", step=step, exact=not why_not, why_not=why_not)
    return format_resumed(step, why_not)


def save(job: Job, take: Callable[[], Snapshot], best: Best | None, last: bool = False) -> None:
    """Write a checkpoint. All ranks call it: each adds its part, and the first one writes."""
    saving = job.saving
    with saving.count_stall():
        saving.wait_until_ready()
        # no row up to this step may be missing when a later attempt continues from here
        job.metrics.flush()
        snapshot = take()
    saving.write(snapshot, best.step if best else None, last)


def hold_best(job: Job, take: Callable[[], Snapshot]) -> None:
    """Keep the best state so far in memory: the end of an epoch alone is not a reason to write."""
    saving = job.saving
    with saving.count_stall():
        saving.wait_until_ready(best=True)
        snapshot = take()
    saving.hold_best(snapshot)


def best_to_record(best: Best | None) -> dict[str, Any] | None:
    if best is None:
        return None
    record = asdict(best)
    if best.mark is None:
        del record["mark"], record["mark_epoch"]
    return record


def best_from_record(record: Mapping[str, Any] | None) -> Best | None:
    return Best(**record) if record else None


# errors -------------------------------------------------------------------------------------------


def superseded(attempt: int) -> Superseded:
    return Superseded(f"a newer attempt of this run has begun: attempt {attempt} ends here")


def does_not_fit(folder: Path, error: Exception) -> RampupError:
    """Return the error of a checkpoint whose state does not match what the run has now."""
    return RampupError(
        f"{folder} does not match the current model or optimizer: {str(error).splitlines()[0]}",
        "resume with the code and the settings that the run was started with",
    )


def mentions(error: BaseException, signs: Iterable[str]) -> bool:
    """Return whether the message of an error has one of these signs in it, in lower case."""
    text = str(error).lower()
    return any(sign in text for sign in signs)


def lost_peer(rank: int) -> RampupError:
    return LostPeer(
        f"rank {rank} lost contact with another rank", "see the error of the rank that failed first"
    )


def cannot_join(rank: int, size: int, error: Exception, hint: str) -> RampupError:
    reason = str(error).splitlines()[0]
    return RampupError(f"rank {rank} of {size} can't join the others: {reason}", hint)


def check_world(sums: list[float], size: int, hint: str) -> None:
    """Refuse a group in which a rank is alone or twice: it would stay unnoticed for hours.

    `sums` are those of the ranks' numbers and of 1 over all ranks.
    """
    if sums != [size * (size - 1) / 2, size]:
        raise RampupError(
            f"the ranks do not form one world of {size}: their numbers add up to {sums[0]:.0f}",
            hint,
        )


def refuse_idle_gpus(
    gpus_per_node: int,
    problem: str,
    hint: Callable[[str], str],
    environ: Mapping[str, str] = os.environ,
) -> None:
    """Refuse to compute on the CPU while a GPU is reserved for it.

    `hint` makes the hint from how to ask for no GPU.
    """
    found = hardware.find_reserved_gpu(gpus_per_node, environ)
    if found:
        reserved_by, without = found
        raise RampupError(f"{reserved_by} reserves a GPU, {problem}", hint(without))


def note_large_batch(batch_size: int, samples: int) -> None:
    """Say that an epoch is a single step."""
    if batch_size > samples:
        say(
            f"note: batch_size={batch_size:,} is larger than the data ({samples:,} samples): "
            "an epoch is one step"
        )
