"""Where the wall clock of a run goes: start, data, compute, communication, evaluation, saving.

The engine marks the end of each stretch as it happens, so every phase is measured; what nobody
claimed is `other`. The clock is this process's own: on a GPU a stretch lasts until the host goes
on, and waiting for the device counts where the host waits; under DDP communication overlaps with
compute and counts there.
"""

import time
from collections.abc import Callable

PHASES = ("start", "data", "compute", "communication", "evaluation", "saving")


class Phases:
    def __init__(self, started: float, clock: Callable[[], float] = time.perf_counter) -> None:
        """`started`: when the attempt began, in seconds since 1970, before this process existed."""
        self.seconds = dict.fromkeys(PHASES, 0.0)
        self._clock = clock
        self._last = self._started = clock() - max(0.0, time.time() - started)

    def mark(self, phase: str) -> None:
        """The time since the last mark went into `phase`."""
        now = self._clock()
        self.seconds[phase] += now - self._last
        self._last = now

    def skip(self) -> None:
        """The time since the last mark went into none of them."""
        self._last = self._clock()

    def summary(self) -> dict[str, float]:
        """Seconds per phase, the unexplained rest and the whole."""
        wall = self._clock() - self._started
        other = wall - sum(self.seconds.values())
        times = {**self.seconds, "other": other, "wall": wall}
        return {phase: round(seconds, 4) for phase, seconds in times.items()}
