"""One run and the fault that is to meet it: waiting for the moment, and bringing the run home
afterwards.

A fault is a function of a scene. Every wait here has an end: a run that hangs is a run that is
lost.
"""

import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from rampup.core.spec import RunSpec
from rampup.drill.stage import Stage
from rampup.errors import RampupError
from rampup.rundir.files import AttemptDir, RunDir
from rampup.runs.state import State

HELP_AT_MOST = 3
SETTLED_S = 6.0
"""Slurm may call a job failed for a moment before it puts it back into the queue."""
EARLIEST, LATEST = 0.1, 0.5
"""Of the training: when a fault comes that is to meet a run while it trains."""


class TooLate(Exception):
    """The run was done before the fault came."""


class Impossible(RampupError):
    """It turned out that the fault can't be caused here."""


class Lost(Exception):
    """The run did not come home; the words say why."""


@dataclass(frozen=True)
class Undisturbed:
    """The run without a fault, to compare the others with."""

    run: RunDir
    wall_s: float
    """From its start to its end."""
    train_s: float
    """From the first sign of training to the end."""
    steps: int
    in_save: float
    """The share of the time in which a checkpoint was being written."""


@dataclass
class Scene:
    stage: Stage
    spec: RunSpec
    chance: random.Random
    whole: Undisturbed
    moment: float
    """When the fault comes: the share of the run's time, or of its training."""
    by_itself: bool
    """The run must come back without help."""
    haste: float = 1.0
    """Below 1 after runs that were done before the fault came: then it comes so much earlier."""
    root: Path | None = None
    resume_with: dict[str, str] = field(default_factory=dict)
    """What a person would say to `rampup resume`."""
    wrong: str = ""
    """What a fault saw that must not be, though the run came home."""
    in_save: bool = False
    """Whether the fault came while a checkpoint was being written."""
    helped: int = 0
    began: float = 0.0
    run: RunDir = field(init=False)

    @property
    def patience_s(self) -> float:
        """How long a wait may take: the fault may cost some time, but not for ever."""
        return 60.0 + 5 * self.whole.wall_s + (300.0 if self.stage.place.slurm else 0.0)

    @property
    def attempt(self) -> AttemptDir:
        """The first one, which the fault is to meet."""
        return self.run.attempt(1)

    def start(self) -> None:
        self.began = time.time()
        self.run = self.stage.start(self.spec, self.root)

    # waiting --------------------------------------------------------------------------------------

    def state(self) -> State:
        return self.stage.state(self.run)

    def wait(
        self,
        true: Callable[[], object],
        what: str,
        may_end: bool = False,
        within_s: float | None = None,
    ) -> None:
        """Until it is true. TooLate when the run has ended before, Lost when it takes for ever."""
        deadline = time.monotonic() + (self.patience_s if within_s is None else within_s)
        while not true():
            if not may_end and self.state().ended:
                raise TooLate
            if time.monotonic() > deadline:
                raise Lost(f"it is {self.state().name}, and waits for ever: {what}")
            self.stage.pause()

    def wait_for_moment(self) -> None:
        """Some time between the start of the first process and its end, whatever the run does
        then."""
        if self.stage.place.slurm:
            self.wait(lambda: self.attempt.facts, "the job begins")
        since = self.attempt.facts["started"] if self.stage.place.slurm else self.began
        due = since + self.haste * self.moment * self.whole.wall_s
        self.wait(lambda: time.time() >= due, "the moment")

    def wait_for_training(self) -> None:
        """Some time while the run trains."""
        self.wait(self.attempt.progress_file.exists, "training begins")
        share = EARLIEST + self.moment * (LATEST - EARLIEST)
        due = time.time() + self.haste * share * self.whole.train_s
        self.wait(lambda: time.time() >= due, "the moment")

    def note_saving(self) -> None:
        self.in_save = is_saving(self.run)

    # home -----------------------------------------------------------------------------------------

    def wait_for_end(self) -> State:
        """Ended as it is, and not about to be started again."""
        since, looked = time.monotonic(), 0.0
        while not (state := self.state()).ended or not self._is_settled(state):
            if time.monotonic() - since > self.patience_s:
                raise Lost(f"it is still {state.name} after {self.patience_s:.0f} s")
            if (
                state.name == "pending"
                and self.stage.place.slurm
                and time.monotonic() - looked > 1.0
            ):
                looked = time.monotonic()
                self.stage.start_soon(self.run)
            self.stage.pause()
        return state

    def _is_settled(self, state: State) -> bool:
        if not self.by_itself or state.name == "completed":
            return True
        deadline = time.monotonic() + SETTLED_S
        while time.monotonic() < deadline:
            if not self.state().ended:
                return False
            self.stage.pause()
        return True

    def come_home(self) -> None:
        """To the end of the run, as a user would: by itself, or with `rampup resume`."""
        while (state := self.wait_for_end()).name != "completed":
            if self.helped == HELP_AT_MOST:
                raise Lost(f"{state.name} after it was resumed {self.helped} times: {state.cause}")
            try:
                self.stage.resume(self.run, self.resume_with)
            except RampupError as error:
                raise Lost(f"it can't be resumed: {error.message}") from error
            self.helped += 1


def is_saving(run: RunDir) -> bool:
    try:
        return any(".tmp-" in name for name in os.listdir(run.checkpoints))
    except FileNotFoundError:
        return False
