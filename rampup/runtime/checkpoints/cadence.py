"""When the next checkpoint is due: after so many steps, after so much time, or as often as it costs
at most 1 %.

Framework-free and without threads; the clock is given. Steps and epochs follow from the step alone,
so every rank knows by itself; only rank 0 looks at the time, and its wish travels to the others with
the gradients.
"""

import time
from collections.abc import Callable

from rampup.core.spec import Every

SHARE = 0.01
"""The share of a run's time that its checkpoints may cost."""
SHORTEST_S = 10.0
LONGEST_S = 1800.0
"""A run never loses more than this, whatever it costs."""


class Cadence:
    def __init__(self, every: Every, clock: Callable[[], float] = time.perf_counter) -> None:
        self.every = every
        self._clock = clock
        self._began = self._last = clock()
        self._spent_s = self._cost_s = 0.0
        self._retry = False
        self._steps = 0

    @property
    def never(self) -> bool:
        return self.every.unit == "never"

    def begin(self, steps_per_epoch: int) -> None:
        """The first step is about to be taken."""
        self._began = self._last = self._clock()
        if self.every.unit in ("steps", "epochs"):
            self._steps = self.every.number * (
                steps_per_epoch if self.every.unit == "epochs" else 1
            )

    def due_at(self, step: int) -> bool:
        """Return whether one is due by the number of steps: the same on every rank."""
        return self._steps > 0 and step % self._steps == 0

    def due_now(self) -> bool:
        """Return whether one is due by the time that has passed."""
        unit, since = self.every.unit, self._clock() - self._last
        if unit == "seconds":
            return since >= self.every.number
        if unit != "auto" or since < SHORTEST_S:
            return False
        return self._retry or since >= LONGEST_S or self.affordable()

    def affordable(self) -> bool:
        """Return whether one more like the last would leave the whole cost below its share of the
        time so far."""
        return self._spent_s + self._cost_s <= SHARE * (self._clock() - self._began)

    @property
    def measured(self) -> bool:
        """Whether it is known what one costs."""
        return self._cost_s > 0

    def record_taken(self) -> None:
        """One was due and has been taken."""
        self._last = self._clock()

    def record_cost(self, seconds: float) -> None:
        """Add a cost beside that of whole checkpoints: a copy of the best state."""
        self._spent_s += seconds

    def record_written(self, cost_s: float) -> None:
        """It is on the disk, at this cost in seconds."""
        self._spent_s += cost_s
        self._cost_s = cost_s
        self._retry = False

    def record_failed(self, cost_s: float) -> None:
        """It is not on the disk. The next chance comes soon, but not at once: the user may be making
        room."""
        self._spent_s += cost_s
        self._retry = True
        self._last = self._clock()
