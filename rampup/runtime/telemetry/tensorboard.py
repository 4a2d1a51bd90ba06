"""The live mirror of a run for TensorBoard: `tb/` in the run directory, one event file per attempt,
by rank 0.

The writers of metrics and events pass on what they write; a loop that has pictures or PR curves
adds them. What comes in is only appended to a queue; the thread that flushes the metrics encodes
it, about every ten seconds. A failure is reported once and ends the mirror: it never raises, and
never disturbs training or the metrics. It does not import TensorBoard.
"""

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from io import FileIO
from typing import Any, NamedTuple

from rampup.core import tfevents
from rampup.core.metrics import get_step, name_numbers
from rampup.core.redact import redact
from rampup.rundir.files import RunDir

FLUSH_AFTER_S = 10.0
MANY = 5_000
"""So many items are written at once, whatever the clock says."""


class NoTensorBoard:
    """The mirror of every rank but the first: it writes nothing."""

    def row(self, row: Mapping[str, Any]) -> None:
        """A row of metrics, as it is written."""

    def event(self, what: str, facts: Mapping[str, Any]) -> None:
        """Something happened: `resumed` and `end` matter here."""

    def image(self, step: int, name: str, png: bytes) -> None:
        """A picture, as the bytes of a PNG file."""

    def pr_curve(self, step: int, name: str, counts: Sequence[Sequence[float]]) -> None:
        """True positives, false positives, true negatives, false negatives, at even thresholds from
        0 to 1."""

    def histogram(
        self, step: int, name: str, counts: Sequence[int], edges: Sequence[float], squares: float
    ) -> None:
        """How many values lie between each two edges, and the sum of their squares."""

    def text(self, step: int, name: str, markdown: str) -> None:
        """Words or a table, as Markdown."""

    def graph(self, nodes: Sequence[tfevents.Node]) -> None:
        """The parts of a model, and which feeds which."""

    def flush_when_due(self) -> None:
        """Asked every second by the thread that flushes the metrics."""

    def close(self) -> None:
        """Bring all to the file; nothing can be added afterwards."""


class Item(NamedTuple):
    """Something that waits to be written and is not a row."""

    name: str
    step: int
    encode: Callable[[], bytes]


class TensorBoard(NoTensorBoard):
    def __init__(self, run: RunDir, attempt: int, settings: Mapping[str, Any]) -> None:
        self._run, self._attempt, self._settings = run, attempt, settings
        self._waiting: deque[Mapping[str, Any] | Item] = deque()
        self._session_begun = False
        self._lock = threading.Lock()
        self._file: FileIO | None = None
        self._due = 0.0
        self._off = False
        self._left_out: set[str] = set()

    # what comes in: cheap, and on the thread that trains ------------------------------------------

    def row(self, row: Mapping[str, Any]) -> None:
        self._waiting.append(row)

    def event(self, what: str, facts: Mapping[str, Any]) -> None:
        t = time.time()
        if what == "resumed":
            step = int(facts["step"])
            self._waiting.append(Item(what, step, lambda: self._session(t, step)))
        elif what == "end":
            self._waiting.append(Item(what, 0, lambda: tfevents.hparams_end(t)))

    def image(self, step: int, name: str, png: bytes) -> None:
        t = time.time()
        self._waiting.append(Item(name, step, lambda: tfevents.image(t, step, name, png)))

    def pr_curve(self, step: int, name: str, counts: Sequence[Sequence[float]]) -> None:
        t = time.time()
        try:
            # the loop may go on with its own
            kept = [[float(count) for count in row] for row in counts]
        except (TypeError, ValueError) as error:
            self._leave_out(name, step, error)
        else:
            self._waiting.append(Item(name, step, lambda: tfevents.pr_curve(t, step, name, kept)))

    def histogram(
        self, step: int, name: str, counts: Sequence[int], edges: Sequence[float], squares: float
    ) -> None:
        t = time.time()
        self._waiting.append(
            Item(name, step, lambda: tfevents.histogram(t, step, name, counts, edges, squares))
        )

    def text(self, step: int, name: str, markdown: str) -> None:
        t = time.time()
        self._waiting.append(Item(name, step, lambda: tfevents.markdown(t, step, name, markdown)))

    def graph(self, nodes: Sequence[tfevents.Node]) -> None:
        t = time.time()
        self._waiting.append(Item("graph", 0, lambda: tfevents.graph(t, nodes)))

    # what goes out: on the thread that flushes ----------------------------------------------------

    def flush_when_due(self) -> None:
        if self._waiting and (time.monotonic() >= self._due or len(self._waiting) >= MANY):
            self._flush()

    def close(self) -> None:
        self._flush()
        with self._lock:
            self._off = True
            if self._file is not None:
                with contextlib.suppress(OSError):  # what could not be written was said
                    self._file.close()

    def _flush(self) -> None:
        with self._lock:
            self._due = time.monotonic() + FLUSH_AFTER_S
            if self._off:
                self._waiting.clear()
                return
            try:
                if self._waiting:
                    write_all(self._file or self._open(), b"".join(self._encode_waiting()))
            except Exception as error:  # whatever it is, the run is worth more than its mirror
                self._off = True
                warn(f"no more TensorBoard events: {error}")

    def _open(self) -> FileIO:
        path, t = self._run.tensorboard_file(self._attempt), time.time()
        path.parent.mkdir(exist_ok=True)
        file = self._file = FileIO(path, "a")
        # a command may be several programs, one after the other: they are one session
        if file.tell():
            self._session_begun = True
        else:
            write_all(
                file,
                tfevents.version(t)
                + tfevents.hparams_start(t, self._run.id, redact(self._settings)),
            )
        return file

    def _encode_waiting(self) -> Iterator[bytes]:
        for _ in range(len(self._waiting)):
            item = self._waiting.popleft()
            try:
                yield self._encode_item(item) if isinstance(item, Item) else self._encode_row(item)
            except Exception as error:  # this item makes no sense; the next may
                name, step = (
                    (item.name, item.step)
                    if isinstance(item, Item)
                    else ("a row", item.get("step"))
                )
                self._leave_out(name, step, error)

    def _leave_out(self, name: str, step: Any, error: Exception) -> None:
        """Warn once for each name: a loop that draws one badly draws it so every time."""
        if str(name) not in self._left_out:
            warn(f"left out of the TensorBoard events: {name} at step {step}: {error}")
        self._left_out.add(str(name))

    def _encode_item(self, item: Item) -> bytes:
        found = item.encode()
        # TensorBoard would drop what comes before the session's start
        if item.step and not self._session_begun:
            return self._session(time.time(), 0) + found
        return found

    def _encode_row(self, row: Mapping[str, Any]) -> bytes:
        values, step = name_numbers(row), get_step(row)
        if step is None or not values:
            return b""
        begin = b"" if self._session_begun else self._session(row["t"], 0)
        return begin + tfevents.scalars(row["t"], step, values)

    def _session(self, t: float, resumed: int) -> bytes:
        """Encode the start of a session. Every attempt begins with one, the first too: TensorBoard takes
        the second one that it sees for a restart."""
        self._session_begun = True
        return tfevents.session_start(t, resumed + 1)


def write_all(file: FileIO, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) :]


def warn(words: str) -> None:
    with contextlib.suppress(OSError):  # the log may be on the same full disk
        print(f"warning: {words}", flush=True)
