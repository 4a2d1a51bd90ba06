"""Checkpoints beside the training: rank 0 hands over a copy of its state and continues, while a
thread writes it.

One is written at a time. A write that fails is reported at once in the log and in events.jsonl,
leaves the checkpoint before it as it is, and is tried again once with the next one; a second failure
in a row ends the run, and so does a failure of the last one. The best state is held back until it
can be afforded, at the latest until the next checkpoint.
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
    """A state as it was at a step: named files to write, from memory that does not change
    meanwhile."""

    step: int
    files: Mapping[str, Content]
    meta: Mapping[str, Any]


@dataclass
class Cost:
    """What the checkpoints of an attempt have cost so far."""

    count: int = 0
    stall_s: float = 0.0
    """How long the training loop stood still."""
    write_s: float = 0.0
    """CPU time of the thread that writes."""

    def summarize(self, wall_s: float) -> dict[str, float]:
        """Return the cost for the record of the end, with the share of the attempt's time."""
        share = (self.stall_s + self.write_s) / wall_s if wall_s > 0 else 0.0
        return {
            "count": self.count,
            "stall_s": round(self.stall_s, 4),
            "write_s": round(self.write_s, 4),
            "share": round(share, 5),
        }


class NoSaving:
    """The saving of all ranks but rank 0: they know when a step alone makes a checkpoint due, and
    write nothing."""

    def __init__(self, cadence: Cadence) -> None:
        self.cadence = cadence
        self.cost = Cost()
        self.saved: int | None = None
        """The step of the newest checkpoint that is on the disk."""

    @property
    def never(self) -> bool:
        return self.cadence.never

    def wants_checkpoint(self) -> bool:
        """Return whether one is due by time; called before every step. Raises the failures of the
        writing thread, too."""
        return False

    @contextmanager
    def count_stall(self) -> Iterator[None]:
        """Count the time inside of this as a stall of the training."""
        yield

    def wait_until_ready(self, best: bool = False) -> None:
        """Wait until a snapshot may be taken: the memory of the one before, or of the best, is no
        longer being read."""

    def write(self, snapshot: Snapshot, best: int | None, last: bool = False) -> None:
        """Write it; `best` is the step of the best state. The last one is waited for."""

    def hold_best(self, snapshot: Snapshot) -> None:
        """Keep the best state so far, in memory of its own, to be written when it can be afforded."""

    def finish(self) -> None:
        """Wait until all is on the disk; an error says what is not."""

    def end(self) -> None:
        """Wait a moment for what is being written now, and report nothing."""


class Saving(NoSaving):
    """The saving of rank 0. `before_commit` brings to the disk what must not be older than a
    checkpoint: the metrics."""

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
        self._reads_held = self._wanted = False
        self._failures = 0
        self._error: Exception | None = None
        self._stall_s = 0.0
        self._look_at = 0.0

    # the loop -------------------------------------------------------------------------------------

    def wants_checkpoint(self) -> bool:
        now = self._clock()
        if now < self._look_at:
            return self._wanted
        self._look_at = now + LOOK_EVERY_S
        self._raise_if_failed()
        if self.never or self._busy():
            return self._wanted
        if self._held and not self._error and self.cadence.measured and self.cadence.affordable():
            self._start([self._held], self._held.step)
        else:
            self._wanted = self._wanted or self.cadence.due_now()
        return self._wanted

    @contextmanager
    def count_stall(self) -> Iterator[None]:
        began = self._clock()
        yield
        spent = self._clock() - began
        self.cost.stall_s += spent
        self._stall_s += spent

    def wait_until_ready(self, best: bool = False) -> None:
        if self._reads_held or not best:
            self._wait()
        self._raise_if_failed()

    def write(self, snapshot: Snapshot, best: int | None, last: bool = False) -> None:
        self.cadence.record_taken()
        self._wanted = False
        if self._held and self._held.step != best:  # a better one has come
            self._held = None
        held = [self._held] if self._held and self._held.step != snapshot.step else []
        self._start([*held, snapshot], best)
        if last:
            self.finish()

    def hold_best(self, snapshot: Snapshot) -> None:
        self._held = snapshot
        self.cadence.record_cost(self._stall_s)
        self._stall_s = 0.0

    def finish(self) -> None:
        with self.count_stall():
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

    def _raise_if_failed(self) -> None:
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
        except Exception as error:  # reported now, and raised in the loop
            self._error = error
            self._failures += 1
            if not isinstance(error, Superseded):
                self._report(error, snapshot.step)
        else:
            self._error, self._failures = None, 0
        cpu_s = time.thread_time()
        self.cost.write_s += cpu_s
        note = self.cadence.record_written if self._error is None else self.cadence.record_failed
        note(stall_s + cpu_s)

    def _write_one(self, snapshot: Snapshot, best: int | None) -> None:
        self._before_commit()
        self._store.save(snapshot.step, snapshot.files, snapshot.meta)
        self.cost.count += 1
        self.saved = snapshot.step if self.saved is None else max(self.saved, snapshot.step)
        if self._held and self._held.step == snapshot.step:
            self._held = None
        self._store.keep(self._keep, snapshot.step, *([best] if best is not None else []))

    def _report(self, error: Exception, step: int) -> None:
        message = (
            error.message if isinstance(error, RampupError) else f"{type(error).__name__}: {error}"
        )
        # the disk is what failed; the loop will end with it if it fails again
        with contextlib.suppress(StorageError):
            say(
                f"error: the checkpoint of step {step} was not saved: {message}; the ones before it are untouched"
            )
            self._events.write("save_failed", step=step, message=message)
