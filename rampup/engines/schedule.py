"""The learning rate of a step, as a factor of the base rate: a pure function, so a resumed run has
no state of it."""

import math
from dataclasses import dataclass

RISE = 0.25
"""kind=onecycle: the part of the run in which the rate rises."""


@dataclass(frozen=True)
class Schedule:
    kind: str
    steps: int
    """Of the whole run."""
    warmup_steps: int = 0
    decay_steps: int = 1
    """kind=step: steps between two drops."""
    decay_factor: float = 0.1

    def factor(self, step: int) -> float:
        """For the update that follows `step` earlier ones. The last step of the warmup has the full
        rate."""
        if self.kind == "onecycle":
            return self._one_cycle(step)
        if step < self.warmup_steps:
            return (step + 1) / self.warmup_steps
        if self.kind == "constant":
            return 1.0
        if self.kind == "step":
            return float(self.decay_factor ** (step // self.decay_steps))
        done = (step - self.warmup_steps) / max(1, self.steps - self.warmup_steps)
        return 1 - done if self.kind == "linear" else 0.5 * (1 + math.cos(math.pi * done))

    def _one_cycle(self, step: int) -> float:
        """Up to the full rate and down to nothing, in straight lines; a warmup takes the place of
        the rise."""
        rise = self.warmup_steps or max(1, round(RISE * self.steps))
        return min((step + 1) / rise, max(0, self.steps - step) / max(1, self.steps - rise + 1))
