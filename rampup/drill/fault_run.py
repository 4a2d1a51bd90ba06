"""One run and the fault that meets it: wait for the moment, then bring the run to its end.

Drill makes one FaultRun for each run with a fault and passes it to the functions in
rampup/drill/faults. Every wait here has a limit: a run that hangs counts as lost. Never decides
whether the result is right; that is verdict.py.
"""

import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from rampup.core.spec import RunSpec
from rampup.drill.runner import Runner
from rampup.errors import RampupError
from rampup.rundir.files import AttemptDir, RunDir
from rampup.runs.state import State

MAX_RESUMES = 3
STAYS_ENDED_S = 6.0
"""Slurm may call a job failed for a moment before it puts it back into the queue."""
SKIP_DELAY_EVERY_S = 1.0
EARLIEST, LATEST = 0.1, 0.5
"""The share of the training after which a fault comes that must meet a run while it trains."""


class TooLate(Exception):
    """The run ended before the fault came."""


class Impossible(RampupError):
    """The fault can't be caused here, which only the run could show."""


class Lost(Exception):
    """The run never completed; the message says why."""


@dataclass(frozen=True)
class Baseline:
    """The run without a fault, with which the others are compared."""

    run: RunDir
    wall_s: float
    """From its start to its end."""
    train_s: float
    """From the first sign of training to the end."""
    steps: int
    in_save: float
    """The share of the time in which a checkpoint was being written."""


@dataclass
class FaultRun:
    """A run that meets one fault."""

    runner: Runner
    spec: RunSpec
    rng: random.Random
    baseline: Baseline
    moment: float
    """When the fault comes: the share of the run's time, or of its training."""
    unaided: bool
    """The run must recover without `rampup resume`."""
    time_scale: float = 1.0
    """Below 1 after runs that ended before the fault came: the fault then comes earlier."""
    root: Path | None = None
    """Where the run is made, when that is not the folder of the drill."""
    resume_options: dict[str, str] = field(default_factory=dict)
    """The options that a person would give to `rampup resume`."""
    violation: str = ""
    """A broken promise that the fault observed, even if the run completed."""
    in_save: bool = False
    """Whether the fault came while a checkpoint was being written."""
    resumes: int = 0
    began: float = 0.0
    run: RunDir = field(init=False)

    @property
    def timeout_s(self) -> float:
        """The limit of every wait: generous, because a fault may cost some time."""
        queue_s = 300.0 if self.runner.place.on_slurm else 0.0
        return 60.0 + 5 * self.baseline.wall_s + queue_s

    @property
    def first_attempt(self) -> AttemptDir:
        """The attempt that the fault meets."""
        return self.run.attempt(1)

    def start(self) -> None:
        self.began = time.time()
        self.run = self.runner.start(self.spec, self.root)

    # waiting --------------------------------------------------------------------------------------

    def state(self) -> State:
        return self.runner.state(self.run)

    def wait(
        self,
        condition: Callable[[], object],
        what: str,
        may_end: bool = False,
        within_s: float | None = None,
    ) -> None:
        """Wait for a condition.

        Raises TooLate when the run ends before it (unless `may_end`), and Lost after the limit.
        """
        deadline = time.monotonic() + (self.timeout_s if within_s is None else within_s)
        while not condition():
            if not may_end and self.state().ended:
                raise TooLate
            if time.monotonic() > deadline:
                raise Lost(f"it is {self.state().name}, and waits endlessly: {what}")
            self.runner.pause()

    def wait_for_moment(self) -> None:
        """Wait for the moment between the start of the first process and the end of the run."""
        since = self.began
        if self.runner.place.on_slurm:
            self.wait(lambda: self.first_attempt.facts, "the job begins")
            since = self.first_attempt.facts["started"]
        due = since + self.time_scale * self.moment * self.baseline.wall_s
        self.wait(lambda: time.time() >= due, "the moment")

    def wait_for_training(self) -> None:
        """Wait for the moment within the training of the run."""
        self.wait(self.first_attempt.progress_file.exists, "training begins")
        share = EARLIEST + self.moment * (LATEST - EARLIEST)
        due = time.time() + self.time_scale * share * self.baseline.train_s
        self.wait(lambda: time.time() >= due, "the moment")

    def record_in_save(self) -> None:
        """Record whether a checkpoint is being written just now."""
        self.in_save = is_saving(self.run)

    # the end --------------------------------------------------------------------------------------

    def wait_for_end(self) -> State:
        """Wait until the run has ended and is not about to be started again by itself."""
        since, skipped = time.monotonic(), 0.0
        while not (state := self.state()).ended or not self._stays_ended(state):
            now = time.monotonic()
            if now - since > self.timeout_s:
                raise Lost(f"it is still {state.name} after {self.timeout_s:.0f} s")
            queued = state.name == "pending" and self.runner.place.on_slurm
            if queued and now - skipped > SKIP_DELAY_EVERY_S:
                skipped = now
                self.runner.skip_requeue_delay(self.run)
            self.runner.pause()
        return state

    def _stays_ended(self, state: State) -> bool:
        if not self.unaided or state.name == "completed":
            return True
        deadline = time.monotonic() + STAYS_ENDED_S
        while time.monotonic() < deadline:
            if not self.state().ended:
                return False
            self.runner.pause()
        return True

    def finish_or_resume(self) -> None:
        """Bring the run to its end as a user would: wait, and use `rampup resume` when it ended."""
        while (state := self.wait_for_end()).name != "completed":
            if self.resumes == MAX_RESUMES:
                raise Lost(f"{state.name} after it was resumed {self.resumes} times: {state.cause}")
            try:
                self.runner.resume(self.run, self.resume_options)
            except RampupError as error:
                raise Lost(f"it can't be resumed: {error.message}") from error
            self.resumes += 1


def is_saving(run: RunDir) -> bool:
    """Whether a checkpoint of the run is being written just now."""
    try:
        return any(".tmp-" in name for name in os.listdir(run.checkpoints))
    except FileNotFoundError:
        return False
