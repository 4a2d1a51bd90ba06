"""How far a run is, and where its time goes: written by rank 0 for people and for readers.

Progress has two forms: whole lines in the log, greppable `key=value`, at most one per 30 s and one
per epoch; and a heartbeat for the command line's bar, one JSON line that is overwritten in place at
most twice a second. Reporting every step costs one look at the clock. It never draws a bar itself.

Phases are measured, not estimated: the engine marks the end of each stretch as it happens, and the
rest is `other`. The clock is this process's own: on a GPU a stretch lasts until the host continues,
and waiting for the device counts where the host waits; under DDP communication overlaps with
compute and counts there.
"""

import json
import math
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rampup.runtime import storage

BEAT_EVERY_S = 0.5
LINE_EVERY_S = 30.0
BEAT_BYTES = 512
BEAT_METRICS = 3
PLACE = ("epoch", "step", "t")
"""The keys that say where a row belongs. All others are measurements."""
PHASES = ("start", "data", "compute", "communication", "evaluation", "saving")


class NoProgress:
    """The progress of every rank but the first: it shows nothing."""

    def stage(self, words: str) -> None:
        """Say what the start is busy with: shown to whoever waits for the first step."""

    def begin(
        self, steps: int | None, epochs: int | None, loss: Callable[[], float | None], done: int = 0
    ) -> None:
        """Training starts now, `done` steps in. `loss` is asked only when something is shown."""

    def step(self, step: int, epoch: int, samples: int) -> None:
        """A step is done, and with it `samples` of this epoch."""

    def report(self, step: int, values: Mapping[str, Any]) -> bool:
        """Show values that were logged, if something is due. Return whether a line has shown them."""
        return True

    def milestone(self, step: int, values: Mapping[str, Any]) -> None:
        """An epoch or the whole has ended with these values: shown in any case."""

    def end(self) -> None:
        """Training has ended."""


class Progress(NoProgress):
    def __init__(
        self,
        file: Path | None,
        line_every_s: float = LINE_EVERY_S,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._file = file
        self._line_every_s = line_every_s
        self._clock = clock
        self._beat_file: int | None = None

    def stage(self, words: str) -> None:
        self._write_beat({"stage": words, "t": time.time()})

    def begin(
        self, steps: int | None, epochs: int | None, loss: Callable[[], float | None], done: int = 0
    ) -> None:
        self._done = done
        self._steps, self._epochs, self._loss = steps, epochs, loss
        self._began = self._clock()
        self._due = self._began  # the first step is shown at once
        self._line_due = self._began + self._line_every_s
        self._reported = False
        self._seen = (0, 0, self._began)

    def step(self, step: int, epoch: int, samples: int) -> None:
        now = self._clock()
        if now >= self._due:
            rate = self._samples_s(epoch, samples, now)
            self._show(step, {"epoch": epoch, "train_loss": self._loss(), "samples_s": rate}, now)

    def report(self, step: int, values: Mapping[str, Any]) -> bool:
        now = self._clock()
        if not self._reported:  # the first row of a loop: a sign of life
            self._reported = True
            self._line_due = now if math.isfinite(self._line_every_s) else math.inf
        return now >= self._due and self._show(step, values, now)

    def milestone(self, step: int, values: Mapping[str, Any]) -> None:
        self._line_due = 0.0
        self._show(step, values, self._clock())

    def end(self) -> None:
        if self._beat_file is not None:
            os.close(self._beat_file)
            self._beat_file = None

    def _show(self, step: int, values: Mapping[str, Any], now: float) -> bool:
        """The heartbeat, and a line when one is due."""
        self._due = now + BEAT_EVERY_S
        self._beat(step, values)
        if now < self._line_due:
            return False
        self._line_due = now + self._line_every_s
        self._line(step, values, now)
        return True

    def _samples_s(self, epoch: int, samples: int, now: float) -> float | None:
        """Return the rate since the last call in this epoch; None where an epoch's end lies in
        between."""
        seen_epoch, seen_samples, seen_at = self._seen
        self._seen = (epoch, samples, now)
        if epoch != seen_epoch or now <= seen_at:
            return None
        return (samples - seen_samples) / (now - seen_at)

    def _beat(self, step: int, values: Mapping[str, Any]) -> None:
        if not self._file:
            return
        loss = values.get("train_loss", values.get("loss"))
        beat = {
            "step": step,
            "steps": self._steps,
            "epoch": _finite(values.get("epoch")),
            "epochs": self._epochs,
            "train_loss": _finite(loss),
            "samples_s": _finite(values.get("samples_s")),
            "t": time.time(),
        }
        self._write_beat({**beat, **_choose_metrics(values)})

    def _write_beat(self, beat: dict[str, Any]) -> None:
        """Write one line in place. It always has the same length, so no reader sees two halves."""
        if not self._file:
            return
        if len(json.dumps(beat)) >= BEAT_BYTES:
            beat.pop("metrics", None)
        line = json.dumps(beat).ljust(BEAT_BYTES - 1) + "\n"
        with storage.guard_writes(self._file):
            if self._beat_file is None:
                flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
                self._beat_file = os.open(self._file, flags, 0o666)
            os.pwrite(self._beat_file, line.encode(), 0)

    def _line(self, step: int, values: Mapping[str, Any], now: float) -> None:
        epoch = values.get("epoch")
        shown = {
            "epoch": f"{epoch}/{self._epochs}" if epoch and self._epochs else epoch,
            "step": step,
        }
        shown |= {name: value for name, value in values.items() if name not in PLACE}
        shown["eta_s"] = self._eta_s(step, now)
        known = [f"{name}={_short(value)}" for name, value in shown.items() if value is not None]
        storage.say(" ".join(known))

    def _eta_s(self, step: int, now: float) -> int | None:
        if not self._steps or step <= self._done:
            return None
        return round((now - self._began) / (step - self._done) * max(0, self._steps - step))


def _choose_metrics(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the first metrics of a row that has no loss of a known name."""
    if "train_loss" in values or "loss" in values:
        return {}
    others = [name for name in values if name not in (*PLACE, "samples_s")]
    found = {name: _finite(values[name]) for name in others[:BEAT_METRICS]}
    return {"metrics": found} if found else {}


def _finite(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def _short(value: Any) -> str:
    if not isinstance(value, float):
        return str(value)
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"


class Phases:
    """Where the wall clock of a run goes."""

    def __init__(self, started: float, clock: Callable[[], float] = time.perf_counter) -> None:
        """`started` is when the attempt began, in seconds since 1970, before this process existed."""
        self.seconds = dict.fromkeys(PHASES, 0.0)
        self._clock = clock
        self._last = self._started = clock() - max(0.0, time.time() - started)

    def mark(self, phase: str) -> None:
        """Count the time since the last mark as `phase`."""
        now = self._clock()
        self.seconds[phase] += now - self._last
        self._last = now

    def skip(self) -> None:
        """Count the time since the last mark as none of them."""
        self._last = self._clock()

    def summary(self) -> dict[str, float]:
        """Return the seconds per phase, the unexplained rest and the whole."""
        wall = self._clock() - self._started
        other = wall - sum(self.seconds.values())
        times = {**self.seconds, "other": other, "wall": wall}
        return {phase: round(seconds, 4) for phase, seconds in times.items()}
