"""Checkpoints beside the training: rank 0 hands over a copy of its state and goes on, a thread
writes it.

One is written at a time. A write that fails is told at once in the log and in events.jsonl, leaves
the checkpoint before it as it is, and is tried again once with the next one; a second failure in a
row ends the run, and so does a failure of the last one. The best state is held back until it can be
afforded, at the latest until the next one.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rampup.errors import RampupError, Superseded
from rampup.runtime.checkpoints.cadence import Cadence
from rampup.runtime.checkpoints.store import CheckpointStore, Content
from rampup.runtime.storage import StorageError, say
from rampup.runtime.telemetry.metrics import NoEvents

FAILURES_IN_A_ROW = 2
LOOK_EVERY_S = 0.02
LAST_WORDS_S = 10.0
"""How long a process that ends with an error waits for a checkpoint that is being written."""


@dataclass(frozen=True)
class Snapshot:
    """A state as it was at a step: named files to write, from memory that nobody changes
    meanwhile."""

    step: int
    files: Mapping[str, Content]
    meta: Mapping[str, Any]


@dataclass
class Cost:
    """What the checkpoints of an attempt have cost so far."""

    count: int = 0
    stall_s: float = 0.0
    """The training loop stood still."""
    write_s: float = 0.0
    """CPU time of the thread that writes."""

    def of(self, wall_s: float) -> dict[str, float]:
        """For the record of the end, with the share of the attempt's time."""
        share = (self.stall_s + self.write_s) / wall_s if wall_s > 0 else 0.0
        return {
            "count": self.count,
            "stall_s": round(self.stall_s, 4),
            "write_s": round(self.write_s, 4),
            "share": round(share, 5),
        }


class NoSaving:
    """What the other ranks have: they know when a step alone makes a checkpoint due, and write
    nothing."""

    def __init__(self, cadence: Cadence) -> None:
        self.cadence = cadence
        self.cost = Cost()
        self.saved: int | None = None
        """The step of the newest checkpoint that is on the disk."""

    @property
    def never(self) -> bool:
        return self.cadence.never

    def wishes(self) -> bool:
        """Asked before every step: whether one is due by time. Tells failures of the writing
        thread, too."""
        return False

    @contextmanager
    def stalled(self) -> Iterator[None]:
        """The training waits inside of this."""
        yield

    def ready(self, best: bool = False) -> None:
        """Wait until a snapshot may be taken: nobody reads the memory that the one before is in, or
        the best."""

    def write(self, snapshot: Snapshot, best: int | None, last: bool = False) -> None:
        """Write it; `best` is the step of the best state. The last one is waited for."""

    def hold(self, snapshot: Snapshot) -> None:
        """The best so far, in memory of its own: to be written when it can be afforded."""

    def finish(self) -> None:
        """Wait until all is on the disk; an error tells what is not."""

    def end(self) -> None:
        """What is being written now is waited for, for a moment, and nothing is said."""


class Saving(NoSaving):
    """Rank 0's side. `before_commit` brings to the disk what must not be older than a checkpoint:
    the metrics."""

    def __init__(
        self,
        store: CheckpointStore,
        cadence: Cadence,
        keep: int,
        events: NoEvents,
        before_commit: Callable[[], None],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        super().__init__(cadence)
        self._store, self._keep, self._events, self._before_commit = (
            store,
            keep,
            events,
            before_commit,
        )
        self._clock = clock
        self._thread: threading.Thread | None = None
        self._held: Snapshot | None = None
        self._reads_held = self._wished = False
        self._failures = 0
        self._error: Exception | None = None
        self._stall_s = 0.0
        self._look_at = 0.0

    # the loop -------------------------------------------------------------------------------------

    def wishes(self) -> bool:
        now = self._clock()
        if now < self._look_at:
            return self._wished
        self._look_at = now + LOOK_EVERY_S
        self._raise_if_hopeless()
        if self.never or self._busy():
            return self._wished
        if self._held and not self._error and self.cadence.measured and self.cadence.affordable():
            self._start([self._held], self._held.step)
        else:
            self._wished = self._wished or self.cadence.due_now()
        return self._wished

    @contextmanager
    def stalled(self) -> Iterator[None]:
        began = self._clock()
        yield
        spent = self._clock() - began
        self.cost.stall_s += spent
        self._stall_s += spent

    def ready(self, best: bool = False) -> None:
        if self._reads_held or not best:
            self._wait()
        self._raise_if_hopeless()

    def write(self, snapshot: Snapshot, best: int | None, last: bool = False) -> None:
        self.cadence.taken()
        self._wished = False
        if self._held and self._held.step != best:  # a better one has come
            self._held = None
        held = [self._held] if self._held and self._held.step != snapshot.step else []
        self._start([*held, snapshot], best)
        if last:
            self.finish()

    def hold(self, snapshot: Snapshot) -> None:
        self._held = snapshot
        self.cadence.spend(self._stall_s)
        self._stall_s = 0.0

    def finish(self) -> None:
        with self.stalled():
            self._wait()
        if self._error is not None:
            raise self._error

    def end(self) -> None:
        if self._thread is not None:
            self._thread.join(LAST_WORDS_S)

    def _busy(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _wait(self) -> None:
        if self._thread is not None:
            self._thread.join()

    def _raise_if_hopeless(self) -> None:
        error = self._error
        if error is not None and (
            self._failures >= FAILURES_IN_A_ROW or not isinstance(error, StorageError)
        ):
            raise error

    # the thread -----------------------------------------------------------------------------------

    def _start(self, snapshots: list[Snapshot], best: int | None) -> None:
        stall_s, self._stall_s = self._stall_s, 0.0
        self._reads_held = any(snapshot is self._held for snapshot in snapshots)
        # A daemon: a training that fails need not wait for it, and what is half written is nobody's
        # checkpoint.
        self._thread = threading.Thread(
            target=self._write_all,
            args=(snapshots, best, stall_s),
            name="rampup-saving",
            daemon=True,
        )
        self._thread.start()

    def _write_all(self, snapshots: list[Snapshot], best: int | None, stall_s: float) -> None:
        try:
            for snapshot in snapshots:
                self._write_one(snapshot, best)
        except Exception as error:  # told now, and raised in the loop
            self._error = error
            self._failures += 1
            if not isinstance(error, Superseded):
                self._tell(error, snapshot.step)
        else:
            self._error, self._failures = None, 0
        cpu_s = time.thread_time()
        self.cost.write_s += cpu_s
        note = self.cadence.written if self._error is None else self.cadence.failed
        note(stall_s + cpu_s)

    def _write_one(self, snapshot: Snapshot, best: int | None) -> None:
        self._before_commit()
        self._store.save(snapshot.step, snapshot.files, snapshot.meta)
        self.cost.count += 1
        self.saved = snapshot.step if self.saved is None else max(self.saved, snapshot.step)
        if self._held and self._held.step == snapshot.step:
            self._held = None
        self._store.keep(self._keep, snapshot.step, *([best] if best is not None else []))

    def _tell(self, error: Exception, step: int) -> None:
        message = (
            error.message if isinstance(error, RampupError) else f"{type(error).__name__}: {error}"
        )
        # the disk is what failed; the loop will end with it if it goes on
        with contextlib.suppress(StorageError):
            say(
                f"error: the checkpoint of step {step} was not saved: {message}; the ones before it are untouched"
            )
            self._events.write("save_failed", step=step, message=message)
