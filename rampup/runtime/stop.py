"""The request to stop, as a flag that a training loop checks between two steps. Every rank of a run
has one.

It is raised by SIGTERM, by SIGUSR2, by the clock shortly before the time limit, by the file `stop`
of the attempt (`rampup cancel --save`), and when a newer attempt of the run exists. A signal
handler only sets the flag: saving is the loop's business, at a moment when all ranks stand at the
same step. Rank 0 then writes the reason into the file `again`, which the launcher reads. Nothing
here imports a framework or talks to a scheduler.
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
from rampup.runtime.storage import guard_writes

POLL_S = 1.0
OTHERS_POLL_S = 5.0
"""So often a rank other than 0 looks whether rank 0 has stopped: there may be thousands of them."""
PARENT_HEARS_WITHIN_S = 1.0
"""A signal for the whole step reaches the rank and its children at about the same time."""
TIMEOUT, PREEMPT, STOP, SUPERSEDED = "timeout", "preempt", "stop", "superseded"


class StopFlag:
    """The flag that a loop checks. This one is never raised: outside rampup nothing asks to stop."""

    def __init__(self) -> None:
        self.reason = ""
        """Why to stop: timeout, preempt, stop or superseded; empty as long as nothing asks."""
        self.armed = False

    def arm(self) -> None:
        """The loop checks `reason` from now on. Before that, SIGTERM ends the process at once."""
        self.armed = True

    def request(self, reason: str) -> None:
        """Ask the loop to stop. The first reason counts, except that a newer attempt takes the run away
        from this one."""
        if not self.reason or reason == SUPERSEDED:
            self.reason = reason

    def acknowledge(self, step: int | None) -> None:
        """Record why the ranks end, for the launcher. Every rank calls it after all was saved."""


class RankStopFlag(StopFlag):
    """The flag of a rank that rampup has started."""

    def __init__(self, attempt: AttemptDir, context: RankContext) -> None:
        super().__init__()
        self._attempt, self._rank, self._stop_at = attempt, context.rank, context.stop_at
        self._pid, self._waits_for_usr2, self._look_at = os.getpid(), False, 0.0
        # shared with every child: 1 when SIGTERM has reached the rank itself
        self._rank_got_term = mmap.mmap(-1, 1)
        self._install_handlers()
        threading.Thread(target=self._watch, name="rampup-stop", daemon=True).start()

    def arm(self) -> None:
        if not self.armed and self._rank == 0:
            with guard_writes(self._attempt.listens_file):
                self._attempt.listens_file.touch()
        super().arm()

    def acknowledge(self, step: int | None) -> None:
        if self._rank != 0 or self.reason == SUPERSEDED:
            return
        with guard_writes(self._attempt.again_file):
            write_text(self._attempt.again_file, f"{self.reason or PREEMPT}\n")

    def _install_handlers(self) -> None:
        """Block SIGUSR2 and wait for it, where this is the only thread: children inherit that, so no
        worker of a loader dies of it, however it is started. SIGTERM must still end a child."""
        if threading.current_thread() is not threading.main_thread():
            return  # Python allows handlers only there; the clock and the files are still watched
        # a script's own handler is left alone
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._on_term)
            os.register_at_fork(after_in_child=self._in_child)
        self._waits_for_usr2 = hasattr(signal, "sigtimedwait") and is_only_thread()
        if self._waits_for_usr2:
            # a signal that is ignored can't be waited for
            signal.signal(signal.SIGUSR2, lambda number, frame: None)
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
        elif signal.getsignal(signal.SIGUSR2) in (signal.SIG_DFL, signal.SIG_IGN):
            signal.signal(signal.SIGUSR2, lambda number, frame: self._on_usr2())

    def _on_usr2(self) -> None:
        if os.getpid() == self._pid:
            self.request(TIMEOUT)

    def _on_term(self, number: int, frame: FrameType | None) -> None:
        self._rank_got_term[0] = 1
        self.request(PREEMPT)
        if not self.armed:
            raise SystemExit(128 + number)

    def _in_child(self) -> None:
        """Make a forked worker survive SIGTERM when the whole step is signalled, and die when it alone
        is."""

        def on_term(number: int, frame: FrameType | None) -> None:
            deadline = time.monotonic() + PARENT_HEARS_WITHIN_S
            while not self._rank_got_term[0] and time.monotonic() < deadline:
                time.sleep(0.01)
            if not self._rank_got_term[0]:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                os.kill(os.getpid(), signal.SIGTERM)

        if signal.getsignal(signal.SIGTERM) == self._on_term:
            signal.signal(signal.SIGTERM, on_term)

    def _watch(self) -> None:
        while self.reason != SUPERSEDED:
            if self._waits_for_usr2:
                if signal.sigtimedwait({signal.SIGUSR2}, POLL_S) is not None:
                    self.request(TIMEOUT)
            else:
                time.sleep(POLL_S)
            self._poll()

    def _poll(self) -> None:
        if self._stop_at is not None and time.time() > self._stop_at:
            self.request(TIMEOUT)
        if self._rank == 0 and os.path.exists(self._attempt.stop_file):
            self.request(STOP)
        if self._rank == 0 and os.path.exists(self._attempt.next.path):
            self.request(SUPERSEDED)
        if self._rank != 0 and time.monotonic() >= self._look_at:
            self._look_at = time.monotonic() + OTHERS_POLL_S
            self._follow_first_rank()

    def _follow_first_rank(self) -> None:
        """Stop after rank 0 has stopped. Ranks that torch.distributed joins stop together, before
        this; others would never end, because only rank 0 reads the file `stop`."""
        reason = self._attempt.read_again()
        if reason in (TIMEOUT, PREEMPT, STOP):
            self.request(reason)


def is_only_thread() -> bool:
    try:
        return len(os.listdir("/proc/self/task")) == 1
    except OSError:  # not Linux
        return False


def open_stop_flag(context: RankContext) -> StopFlag:
    """Return the flag of this rank; outside rampup one that is never raised."""
    if context.run_dir is None:
        return StopFlag()
    return RankStopFlag(RunDir(context.run_dir).attempt(context.attempt), context)
