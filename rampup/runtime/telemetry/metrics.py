"""The numbers of a run: metrics.jsonl and events.jsonl, one JSON object per line, written by rank 0
alone.

Engines and `rampup.init()` write rows; the other ranks get an object that does nothing, so that a
loop has no `if`. Metric rows are buffered and flushed about once a second, at epoch ends and at the
end; events at once. Both are passed on to the mirror for TensorBoard, which the same thread
flushes.

A value that is not a finite number is written as null, because JSON has no NaN and other readers
refuse Python's; the log says once for each metric what the value really was.
"""

import math
import threading
import time
from typing import Any

import msgspec

from rampup.errors import RampupError
from rampup.rundir.files import AttemptDir
from rampup.runtime.storage import GrowingFile, say
from rampup.runtime.telemetry.tensorboard import NoTensorBoard

FLUSH_AFTER_S = 1.0


class NoMetrics:
    """The metrics of every rank but the first: they write nothing."""

    def __init__(self) -> None:
        self.last: dict[str, Any] = {}

    def write(self, step: int, /, **values: Any) -> None:
        """Write one row: where the run is, and what was measured there."""

    def flush(self) -> None:
        """Write the buffered rows to the file."""

    def close(self) -> None:
        """Flush; nothing can be written afterwards."""


class MetricsWriter(NoMetrics):
    """Rank 0's rows. `last` holds the last value of every metric.

    A thread flushes what waits for a second, because a loop may be silent for long after its last
    row.
    """

    def __init__(self, attempt: AttemptDir, tensorboard: NoTensorBoard | None = None) -> None:
        super().__init__()
        self._file = GrowingFile(attempt.metrics_file)
        self._tensorboard = tensorboard or NoTensorBoard()
        self._rows: list[bytes] = []
        self._warned: set[str] = set()
        self._lock = threading.Lock()
        self._failure: RampupError | None = None
        self._closed = threading.Event()
        threading.Thread(target=self._flush_regularly, name="rampup-metrics", daemon=True).start()

    def write(self, step: int, /, **values: Any) -> None:
        if self._failure:
            raise self._failure
        row = {
            "step": to_plain(step),
            **{name: to_plain(value) for name, value in values.items()},
            "t": time.time(),
        }
        self.last.update(row)
        self._warn_if_not_finite(row)
        self._tensorboard.row(row)
        with self._lock:
            self._rows.append(_encode(row))

    def flush(self) -> None:
        if self._failure:
            raise self._failure
        with self._lock:
            rows, self._rows = self._rows, []
            if rows:
                self._file.append(b"".join(rows))

    def close(self) -> None:
        self._closed.set()
        try:
            self.flush()
            self._file.close()
        finally:
            self._tensorboard.close()

    def _flush_regularly(self) -> None:
        while not self._closed.wait(FLUSH_AFTER_S):
            try:
                self.flush()
            except RampupError as error:  # raised in the loop, by its next row
                self._failure = error
                return
            self._tensorboard.flush_when_due()

    def _warn_if_not_finite(self, row: dict[str, Any]) -> None:
        for name, value in row.items():
            if isinstance(value, float) and not math.isfinite(value) and name not in self._warned:
                self._warned.add(name)
                say(f"warning: {name} is {value} at step {row['step']}; it is recorded as null")


class NoEvents:
    """The events of every rank but the first: they write nothing."""

    ended = False
    """Whether the end was recorded: the run has done its work."""

    def write(self, what: str, **facts: Any) -> dict[str, Any]:
        """Record something that happened once, such as a start or an end; returns the record."""
        return {}

    def close(self) -> None:
        """Nothing can be written afterwards."""


class EventsWriter(NoEvents):
    def __init__(self, attempt: AttemptDir, tensorboard: NoTensorBoard | None = None) -> None:
        self._file = GrowingFile(attempt.events_file)
        self._tensorboard = tensorboard or NoTensorBoard()

    def write(self, what: str, **facts: Any) -> dict[str, Any]:
        record = {"what": what, "t": time.time(), **facts}
        self._file.append(_encode(record))
        self.ended = self.ended or what in ("end", "stopped")
        self._tensorboard.event(what, facts)
        return record

    def close(self) -> None:
        self._file.close()


def _encode(row: dict[str, Any]) -> bytes:
    return msgspec.json.encode(row, enc_hook=str) + b"\n"


def to_plain(value: Any) -> Any:
    """Return a number of any library as Python's own: user code logs tensors and numpy scalars."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return value.item() if hasattr(value, "item") else value
