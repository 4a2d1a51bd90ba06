"""The wish to stop, as a flag that a training loop looks at between two steps. Made for every rank
of a run.

It is raised by SIGTERM, by SIGUSR2, by the clock shortly before the time limit, by the file `stop`
of the attempt (`rampup cancel --save`), and when a newer attempt of the run exists. A signal
handler only sets the flag: saving is the loop's business, at a moment when all ranks stand at the
same step. Rank 0 then leaves word in the file `again`, which the launcher reads. Nothing here
imports a framework or talks to a scheduler.
"""

import mmap
import os
import signal
import threading
import time
from types import FrameType

from rampup.rundir.files import AttemptDir, RunDir
from rampup.rundir.records import write_text
from rampup.runtime.context import RankContext
from rampup.runtime.storage import writing

POLL_S = 1.0
PARENT_HEARS_WITHIN_S = 1.0
"""A signal for the whole step reaches the rank and its children at about the same time."""
TIMEOUT, PREEMPT, STOP, SUPERSEDED = "timeout", "preempt", "stop", "superseded"


class Stop:
    """What a loop looks at. This one is never raised: outside rampup nobody asks."""

    def __init__(self) -> None:
        self.asked = ""
        """Why to stop: timeout, preempt, stop or superseded; empty as long as nobody asks."""
        self.listens = False

    def listen(self) -> None:
        """The loop looks at `asked` from now on. Before that, SIGTERM ends the process at once."""
        self.listens = True

    def ask(self, reason: str) -> None:
        """The first reason counts, except that a newer attempt takes the run away from this one."""
        if not self.asked or reason == SUPERSEDED:
            self.asked = reason

    def obey(self, step: int | None) -> None:
        """Called by every rank after all was saved: the launcher learns why the ranks end."""


class StopWatch(Stop):
    """The flag of a rank that rampup has started."""

    def __init__(self, attempt: AttemptDir, context: RankContext) -> None:
        super().__init__()
        self._attempt, self._rank, self._stop_at = attempt, context.rank, context.stop_at
        self._pid, self._waits = os.getpid(), False
        # shared with every child: 1 when SIGTERM has reached the rank itself
        self._heard = mmap.mmap(-1, 1)
        self._take_signals()
        threading.Thread(target=self._watch, name="rampup-stop", daemon=True).start()

    def listen(self) -> None:
        if not self.listens and self._rank == 0:
            with writing(self._attempt.listens_file):
                self._attempt.listens_file.touch()
        super().listen()

    def obey(self, step: int | None) -> None:
        if self._rank != 0 or self.asked == SUPERSEDED:
            return
        with writing(self._attempt.again_file):
            write_text(self._attempt.again_file, f"{self.asked or PREEMPT}\n")

    def _take_signals(self) -> None:
        """SIGUSR2 is blocked and waited for, where this is the only thread: children inherit that,
        so no worker of a loader dies of it, however it is started. SIGTERM must stay a way to end a
        child."""
        if threading.current_thread() is not threading.main_thread():
            return  # Python allows handlers only there; the clock and the files are still watched
        # a script's own handler is left alone
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._on_term)
            os.register_at_fork(after_in_child=self._in_child)
        self._waits = hasattr(signal, "sigtimedwait") and only_thread()
        if self._waits:
            # a signal that is ignored can't be waited for
            signal.signal(signal.SIGUSR2, lambda number, frame: None)
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
        elif signal.getsignal(signal.SIGUSR2) in (signal.SIG_DFL, signal.SIG_IGN):
            signal.signal(signal.SIGUSR2, lambda number, frame: self._asked_by_slurm())

    def _asked_by_slurm(self) -> None:
        if os.getpid() == self._pid:
            self.ask(TIMEOUT)

    def _on_term(self, number: int, frame: FrameType | None) -> None:
        self._heard[0] = 1
        self.ask(PREEMPT)
        if not self.listens:
            raise SystemExit(128 + number)

    def _in_child(self) -> None:
        """A worker that was forked off lives on when the whole step is signalled, and dies when it
        alone is."""

        def on_term(number: int, frame: FrameType | None) -> None:
            deadline = time.monotonic() + PARENT_HEARS_WITHIN_S
            while not self._heard[0] and time.monotonic() < deadline:
                time.sleep(0.01)
            if not self._heard[0]:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                os.kill(os.getpid(), signal.SIGTERM)

        if signal.getsignal(signal.SIGTERM) == self._on_term:
            signal.signal(signal.SIGTERM, on_term)

    def _watch(self) -> None:
        while self.asked != SUPERSEDED:
            if self._waits:
                if signal.sigtimedwait({signal.SIGUSR2}, POLL_S) is not None:
                    self.ask(TIMEOUT)
            else:
                time.sleep(POLL_S)
            self._look()

    def _look(self) -> None:
        if self._stop_at is not None and time.time() > self._stop_at:
            self.ask(TIMEOUT)
        if self._rank == 0 and os.path.exists(self._attempt.stop_file):
            self.ask(STOP)
        if self._rank == 0 and os.path.exists(self._attempt.next.path):
            self.ask(SUPERSEDED)


def only_thread() -> bool:
    try:
        return len(os.listdir("/proc/self/task")) == 1
    except OSError:  # not Linux
        return False


def watch_for_stop(context: RankContext) -> Stop:
    """The flag of this rank; outside rampup one that is never raised."""
    if context.run_dir is None:
        return Stop()
    return StopWatch(RunDir(context.run_dir).attempt(context.attempt), context)
