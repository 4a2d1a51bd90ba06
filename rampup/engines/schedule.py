"""The learning rate of every step, as a factor of the base rate: one rule for all engines.

`build_schedule` makes it from the settings. It is a pure function of the step, so a checkpoint
holds nothing of it, and a resumed run continues with the same rates.
"""

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rampup.core.settings import Settings
from rampup.errors import RampupError

SCALINGS = {"none": 0.0, "sqrt": 0.5, "linear": 1.0}
"""With which power of the batch size the rate grows."""
RISE = 0.25
"""kind=onecycle: the part of the run in which the rate rises."""


@dataclass(frozen=True)
class Schedule:
    """The learning rate as a factor of the base rate."""

    kind: str
    steps: int
    """The number of steps of the whole run."""
    warmup_steps: int = 0
    decay_steps: int = 1
    """kind=step: the number of steps between two drops."""
    decay_samples: int = 0
    """kind=step: the number of samples between two drops, in the place of a number of steps."""
    samples: int = 0
    """kind=step: the number of samples of an epoch."""
    batch_size: int = 1
    decay_factor: float = 0.1
    warmup_factor: float = 1.0
    """Where the warmup ends, as a factor of the base rate. 1: it rises from nothing to the base
    rate; more: from the base rate to that multiple of it. What follows falls from there."""
    milestones: tuple[int, ...] = ()
    """kind=multistep: where the rate drops, in steps after the warmup."""
    cosine_steps: int | None = None
    """kind=cosine: the number of steps after the warmup in which the rate falls to the lowest; None
    for all that are left."""
    lowest: float = 0.0
    """kind=cosine or step: the lowest factor; the rate stays there."""
    scale: float = 1.0
    """The peak, as a factor of the base rate: it grows with the batch."""
    steps_per_epoch: int = 1
    warmup_epochs: int = 0
    """kind=epochs: the number of epochs in which the rate rises from the base rate to the peak, in
    equal steps."""
    drops: tuple[tuple[float, float], ...] = ()
    """kind=epochs: pairs of an epoch and a factor of the peak, which holds when so many epochs are
    complete."""

    def factor(self, step: int) -> float:
        """Return the factor of the update that follows `step` earlier ones.

        The last step of a warmup that is counted in steps has the full rate.
        """
        if self.kind == "epochs":
            return self._by_epochs(step // self.steps_per_epoch)
        return self.scale * self._unscaled(step)

    def _by_epochs(self, complete: int) -> float:
        """Return the factor of all steps of an epoch; `complete` is the number of those before."""
        if complete < self.warmup_epochs:
            return 1 + (self.scale - 1) * complete / self.warmup_epochs
        reached = [(epoch, drop) for epoch, drop in self.drops if epoch <= complete]
        return self.scale * (max(reached)[1] if reached else 1.0)

    def _unscaled(self, step: int) -> float:
        if self.kind == "onecycle":
            return self._one_cycle(step)
        if step < self.warmup_steps:
            done = (step + 1) / self.warmup_steps
            return done if self.warmup_factor == 1 else 1 + (self.warmup_factor - 1) * done
        peak = self.warmup_factor if self.warmup_steps else 1.0
        if self.kind == "constant":
            return peak
        if self.kind == "step":
            return max(self.lowest, peak * float(self.decay_factor ** self._drops(step)))
        after = step - self.warmup_steps
        if self.kind == "multistep":
            drops = bisect_right(sorted(self.milestones), after)
            return peak * float(self.decay_factor**drops)
        left = max(1, self.steps - self.warmup_steps)
        if self.kind == "linear":
            return peak * (1 - after / left)
        done = min(1.0, after / (self.cosine_steps or left))
        return self.lowest + (peak - self.lowest) * 0.5 * (1 + math.cos(math.pi * done))

    def _drops(self, step: int) -> int:
        """Return how often the rate has dropped, by steps or by the samples of all steps before."""
        if not self.decay_samples:
            return step // self.decay_steps
        epoch, within = divmod(step, self.steps_per_epoch)
        return (epoch * self.samples + within * self.batch_size) // self.decay_samples

    def _one_cycle(self, step: int) -> float:
        """Rise to the full rate and fall to zero, in straight lines.

        A warmup takes the place of the rise.
        """
        rise = self.warmup_steps or max(1, round(RISE * self.steps))
        return min((step + 1) / rise, max(0, self.steps - step) / max(1, self.steps - rise + 1))


def build_schedule(settings: Settings, steps_per_epoch: int, samples: int = 0) -> Schedule:
    base, lowest = settings.get("lr"), settings.get("min_lr") or 0.0
    return Schedule(
        kind=settings.schedule,
        steps=settings.epochs * steps_per_epoch,
        warmup_steps=settings.warmup_steps,
        decay_steps=settings.decay_epochs * steps_per_epoch,
        decay_samples=settings.get("decay_samples", 0),
        samples=samples,
        batch_size=settings.batch_size,
        decay_factor=settings.decay_factor,
        warmup_factor=settings.get("warmup_factor", 1.0),
        milestones=tuple(settings.get("milestones", ())),
        cosine_steps=settings.get("cosine_steps"),
        lowest=min(1.0, lowest / base) if base else 0.0,
        scale=peak_factor(settings),
        steps_per_epoch=steps_per_epoch,
        warmup_epochs=settings.get("warmup_epochs", 0),
        drops=read_drops(settings.get("drops", ())),
    )


def peak_factor(settings: Settings) -> float:
    """Return by how much the rate grows with the batch: the same on any number of ranks."""
    power = SCALINGS[settings.get("lr_scaling", "none")]
    return float((settings.batch_size / settings.get("base_batch_size", 1)) ** power)


def read_drops(given: Sequence[Any]) -> tuple[tuple[float, float], ...]:
    """Return the pairs of the setting `drops`, or refuse what is not a list of pairs."""
    found = []
    for pair in given:
        numbers = isinstance(pair, list | tuple) and all(type(it) in (int, float) for it in pair)
        if not numbers or len(pair) != 2 or min(pair) < 0:
            raise RampupError(
                f"drops={list(given)!r}: {pair!r} is not an epoch and a factor",
                "drops='[[32, 0.25], [64, 0.125]]'",
            )
        found.append((float(pair[0]), float(pair[1])))
    return tuple(found)
