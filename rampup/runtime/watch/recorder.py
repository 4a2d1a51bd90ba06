"""What was found in a program's output, as rows of the run: metrics, progress, and where an attempt
resumed.

One recorder writes metrics.jsonl, events.jsonl and progress.json of an attempt, as `rampup.init()`
does. A program that calls it writes them itself: the recorder then stops for good.
"""

import math
from typing import Any

from rampup.rundir.files import AttemptDir, RunDir
from rampup.rundir.records import Record
from rampup.runtime.storage import GrowingFile
from rampup.runtime.telemetry.metrics import EventsWriter, MetricsWriter
from rampup.runtime.telemetry.progress import Progress
from rampup.runtime.watch.files import identify
from rampup.runtime.watch.log import Found

NOT_METRICS = ("step", "t")


class Recorder:
    def __init__(self, run: RunDir, attempt: AttemptDir) -> None:
        self._attempt = attempt
        self._metrics: MetricsWriter | None = None
        before = read_earlier_rows(run, attempt)
        self._had_rows = bool(before)
        self.last_step = max((row["step"] for row in before), default=0)
        """The step after which rows without one are counted."""
        self.known = {identify(to_found(row)) for row in before}
        """Rows that files of an earlier attempt may show again."""
        self._first: int | None = None
        self._retired = False

    @property
    def retired(self) -> bool:
        """Whether the program writes its own metrics, through rampup."""
        if not self._retired and self._attempt.settings_file.exists():
            self.close()
            self._retired = True
        return self._retired

    def add(self, found: Found) -> None:
        """Write a row. One without a step comes after the last."""
        values = {name: one for name, one in found.values.items() if name not in NOT_METRICS}
        if not values or self.retired:
            return
        metrics = self._metrics or self._open()
        step = self.last_step + 1 if found.step is None else found.step
        self._record_resume(step)
        self.last_step = max(self.last_step, step)
        metrics.write(step, **values)
        self._progress.report(step, values)

    def warn(self, words: str) -> None:
        """Say something in the log of the rank, where people look."""
        log = GrowingFile(self._attempt.rank_log(0))
        log.append(f"rampup: warning: {words}\n".encode())
        log.close()

    def flush(self) -> None:
        if self._metrics is not None:
            self._metrics.flush()

    def close(self) -> None:
        if self._metrics is not None:
            self._progress.end()
            self._metrics.close()
            self._events.close()
            self._metrics = None

    def _open(self) -> MetricsWriter:
        self._metrics = MetricsWriter(self._attempt)
        self._events = EventsWriter(self._attempt)
        self._progress = Progress(self._attempt.progress_file, line_every_s=math.inf)
        self._progress.begin(None, None, lambda: None)
        return self._metrics

    def _record_resume(self, step: int) -> None:
        """Record where a later attempt continued: rows of earlier ones are cut there. A source whose
        steps begin lower moves the cut."""
        if self._had_rows and (self._first is None or step < self._first):
            self._events.write("resumed", step=step - 1)
            self._first = step


def read_earlier_rows(run: RunDir, attempt: AttemptDir) -> list[Record]:
    """Return the rows of the attempts before this one that have a step."""
    if attempt.number == 1:
        return []
    return [row for row in run.history() if isinstance(row.get("step"), int)]


def to_found(row: dict[str, Any]) -> Found:
    values = {name: one for name, one in row.items() if name not in NOT_METRICS}
    return Found(
        {name: math.nan if one is None else one for name, one in values.items()}, row["step"]
    )
