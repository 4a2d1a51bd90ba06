"""`rampup.init()`: settings, metrics and progress for a user's own loop.

    run = rampup.init(lr=0.1, steps=1000)
    for step in range(run.config.steps):
        ...
        run.log(step=step, loss=loss)
    run.finish()

Under rampup it writes into the run directory. Outside it is a world of one that prints a line now and then and writes
nothing, so the same script runs anywhere. It imports no framework, and leaves the loop to the user.
"""

import atexit
import os
import signal
import sys
import threading
import tomllib
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, NoReturn

from rampup.errors import RampupError
from rampup.rundir import AttemptDir, RunDir
from rampup.runtime import failure
from rampup.runtime.context import RankContext, from_environ
from rampup.runtime.metrics import EventsWriter, MetricsWriter, NoEvents, NoMetrics, plain
from rampup.runtime.progress import NoProgress, Progress
from rampup.runtime.settings import Settings
from rampup.runtime.storage import StorageError
from rampup.runtime.watch import sample_this_node

OUTSIDE_LINE_EVERY_S = 1.0


class Run:
    """One rank's view of a run. Made by `init`; every method does nothing harmful on ranks other than 0."""

    def __init__(self, context: RankContext, config: Settings) -> None:
        self.rank = context.rank
        self.local_rank = context.local_rank
        self.world_size = context.world_size
        self.config = config
        self.dir = context.run_dir
        """The run directory; None outside rampup."""
        self._metrics, self._events, self._progress = _writers(context)
        self._progress.begin(_count(config, "steps"), _count(config, "epochs"), lambda: None)
        self._unseen: tuple[int, dict[str, Any]] | None = None
        self._open = True

    def log(self, step: int, **values: Any) -> None:
        """A row of metrics, by rank 0 alone."""
        if not self._open:
            raise RampupError("run.log() after run.finish()", "log before finishing")
        if "t" in values:
            raise RampupError("run.log(t=...): `t` is the time of the row", "give your value another name")
        values = {name: plain(value) for name, value in values.items()}
        self._metrics.write(step, **values)
        shown = self._progress.report(step, values)
        self._unseen = None if shown else (step, values)

    def finish(self) -> None:
        """The run has done what it was to do: record its end. Called at exit too, for a script that forgets it."""
        if self._open:
            if self._unseen:
                self._progress.milestone(*self._unseen)
            self._metrics.flush()
            self._events.write("end", metrics=self._metrics.last, best=None)
            self.close()

    def close(self) -> None:
        """Flush and write no more; without `finish` the run is not recorded as ended well."""
        if self._open:
            self._open = False
            self._progress.end()
            self._metrics.close()
            self._events.close()

    def __enter__(self) -> "Run":
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is None:
            self.finish()
        else:
            self.close()


def init(**defaults: Any) -> Run:
    """Start a run, or join the one that rampup has started. `defaults` are settings that nobody has given."""
    context = from_environ()
    run = Run(context, Settings({**defaults, **_given_settings(context)}))
    if context.run_dir:
        _report_failures(run, RunDir(context.run_dir).attempt(context.attempt))
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, _end_in_good_order)
        sample_this_node(context)
    atexit.register(_finish_at_exit, run, context)
    return run


def _end_in_good_order(number: int, frame: FrameType | None) -> NoReturn:
    """A cancelled run leaves what it has measured: sys.exit runs what is registered with atexit."""
    sys.exit(128 + number)


def _count(config: Settings, name: str) -> int | None:
    """A setting that tells how long the loop will be, if the user has one of that name."""
    value = config.get(name)
    return value if isinstance(value, int) else None


def _given_settings(context: RankContext) -> dict[str, Any]:
    return {**_settings_beside_the_script(), **_settings_of_the_run(context)}


def _settings_of_the_run(context: RankContext) -> dict[str, Any]:
    return dict(RunDir(context.run_dir).config.get("train", {})) if context.run_dir else {}


def _settings_beside_the_script() -> dict[str, Any]:
    folder = Path(sys.argv[0] or ".").absolute().parent
    for name in ("recipe.toml", "rampup.toml"):
        if (folder / name).is_file():
            return _train_table(folder / name)
    return {}


def _train_table(file: Path) -> dict[str, Any]:
    try:
        found = tomllib.loads(file.read_text(encoding="utf-8")).get("train", {})
    except tomllib.TOMLDecodeError as error:
        raise RampupError(f"{file} is not valid TOML: {error}", "correct that line") from None
    return dict(found)


def _writers(context: RankContext) -> tuple[NoMetrics, NoEvents, NoProgress]:
    if context.rank != 0:
        return NoMetrics(), NoEvents(), NoProgress()
    if context.run_dir is None:
        return NoMetrics(), NoEvents(), Progress(None, OUTSIDE_LINE_EVERY_S)
    attempt = RunDir(context.run_dir).attempt(context.attempt)
    return MetricsWriter(attempt), EventsWriter(attempt), Progress(attempt.progress_file)


def _report_failures(run: Run, attempt: AttemptDir) -> None:
    """An exception that nobody catches is kept in the run directory before Python prints it."""
    usual = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if isinstance(error, StorageError):
            _leave(error, attempt, run.rank)
        failure.record(error, attempt, run.rank)
        usual(kind, error, trace)
        run.close()

    sys.excepthook = hook


def _finish_at_exit(run: Run, context: RankContext) -> None:
    try:
        run.finish()
    except StorageError as error:
        if context.run_dir is None:
            raise
        _leave(error, RunDir(context.run_dir).attempt(context.attempt), run.rank)


def _leave(error: StorageError, attempt: AttemptDir, rank: int) -> NoReturn:
    """Python offers no other way to choose the exit code from a hook."""
    os._exit(failure.report(error, attempt, rank))
