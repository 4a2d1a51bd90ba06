"""`rampup.init()`: settings, metrics, checkpoints and progress for a user's own loop.

    run = rampup.init(lr=0.1, steps=1000)
    state = run.resume() or {"weight": 0.0}
    for step in range(run.step + 1, run.config.steps + 1):
        ...
        run.log(step=step, loss=loss)
        stop = run.should_stop
        if stop or step % 100 == 0:
            run.save(state, step)
        if stop:
            break
    run.finish()

Under rampup it writes into the run directory. Outside it is a world of one that prints a line now
and then and writes nothing, so the same script runs anywhere. It imports no framework, and leaves
the loop to the user.
"""

import atexit
import contextlib
import os
import sys
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any, NoReturn

from rampup.errors import RampupError, Superseded
from rampup.rundir.files import AttemptDir, RunDir
from rampup.rundir.records import Record
from rampup.runtime import failure, torch_group
from rampup.runtime.checkpoints import state_files
from rampup.runtime.checkpoints.saving import Snapshot
from rampup.runtime.checkpoints.store import CheckpointStore, format_resumed
from rampup.runtime.context import RankContext, read_context
from rampup.runtime.job import open_saving
from rampup.runtime.own_settings import (
    OwnSettings,
    TrackedSettings,
    collect_settings,
    describe_unread,
)
from rampup.runtime.stop import open_stop_flag
from rampup.runtime.storage import StorageError, say
from rampup.runtime.telemetry.metrics import (
    EventsWriter,
    MetricsWriter,
    NoEvents,
    NoMetrics,
)
from rampup.runtime.telemetry.progress import NoProgress, Progress
from rampup.runtime.telemetry.rows import check_step, read_row
from rampup.runtime.telemetry.sampler import sample_this_node
from rampup.runtime.telemetry.tensorboard import NoTensorBoard, TensorBoard

OUTSIDE_LINE_EVERY_S = 1.0


class Run:
    """One rank's view of a run. Made by `init`; every method does nothing harmful on ranks other
    than 0."""

    def __init__(self, context: RankContext, settings: OwnSettings) -> None:
        self._stop = open_stop_flag(context)  # before any thread is started
        self.rank = context.rank
        self.local_rank = context.local_rank
        self.world_size = context.world_size
        self.config = TrackedSettings(settings.values)
        self._settings = settings
        self.dir = context.run_dir
        """The run directory; None outside rampup."""
        self.tensorboard = _open_tensorboard(context, settings)
        """For pictures and PR curves; what is logged gets there by itself."""
        self._metrics, self._events, self._progress = _open_writers(context, self.tensorboard)
        self._progress.begin(
            _read_count(settings, "steps"), _read_count(settings, "epochs"), lambda: None
        )
        self._unseen: tuple[int, dict[str, Any]] | None = None
        self.step = 0
        """The step from which `resume` continued; 0 when the loop begins anew."""
        self._next_step = 1
        self._context, self._stopping, self._logged = context, False, 0
        self._store = _open_store(context)
        self._saving = (
            open_saving(_read_config(context), self._store, self._events, context)
            if self._store
            else None
        )
        self._open = True

    def log(
        self, row: Mapping[str, Any] | int | None = None, /, step: int | None = None, **metrics: Any
    ) -> None:
        """Write a row of metrics, by rank 0 alone: `run.log({"loss": 0.5})`, with `step=3` or
        without, or `run.log(step=3, loss=0.5)`.

        Without a step the row gets the one after the last row; after `resume`, the one after the
        resumed step.
        """
        if not self._open:
            raise RampupError("run.log() called after run.finish()", "log before finishing")
        step, values = read_row(row, step, metrics, self._next_step)
        self._metrics.write(step, **values)
        self._logged, self._next_step = step, step + 1
        shown = self._progress.report(step, values)
        self._unseen = None if shown else (step, values)

    @property
    def should_stop(self) -> bool:
        """Whether to save and end the loop now, because of a time limit, a preemption or `rampup
        cancel --save`.

        Ask on every rank, once after each step: where torch.distributed joins the ranks, all get
        the same answer at the same step. After the first check, SIGTERM no longer ends the script
        by itself.
        """
        if not self._stopping:
            self._stop.arm()
            self._stopping = torch_group.any_rank(bool(self._stop.reason))
        return self._stopping

    def save(self, state: Mapping[str, Any], step: int) -> None:
        """Write a checkpoint of what the loop needs to continue after `step`, by rank 0 alone.

        The state is copied now and written while the loop continues; `finish` waits for it. Outside
        rampup nothing is written.
        """
        if not self._open:
            raise RampupError("run.save() called after run.finish()", "save before finishing")
        step = check_step(step, "run.save", "run.save(state, step): count steps from 1")
        if self._saving is None or self.rank != 0:
            return
        with self._saving.count_stall():
            self._saving.wait_until_ready()
            self._metrics.flush()
            snapshot = Snapshot(
                step, state_files.encode_state(state), {"world_size": self.world_size, "best": None}
            )
        self._saving.write(snapshot, None)

    def resume(self) -> dict[str, Any] | None:
        """Return the state of the newest valid checkpoint of an earlier attempt, or None; `run.step`
        is its step."""
        if self._store is None:
            return None
        newest = self._store.latest()
        step = torch_group.first_rank_value(newest.step if newest else -1)
        if step < 0:
            return None
        self.step, self._next_step = step, step + 1
        self._events.write("resumed", step=step)
        if self.rank == 0:
            say(format_resumed(step, []))
        return state_files.load_state(self._store.run.checkpoint(step))

    def finish(self) -> None:
        """Record that the loop has ended. Called at exit too, for a script that forgets it."""
        if not self._open:
            return
        if self._unseen:
            self._progress.milestone(*self._unseen)
        if self.rank == 0 and (note := describe_unread(self._settings, self.config)):
            say(note)
        facts: dict[str, Any] = {}
        if self._saving is not None:
            self._saving.finish()
            facts["checkpoints"] = self._saving.cost.summarize(time.time() - self._context.started)
        self._metrics.flush()
        if self._stopping:
            saved = self._saving.saved if self._saving else None
            if self.rank == 0 and (saved or 0) < self._logged:
                say(
                    f"warning: stopped at step {self._logged}, but saved at step {saved}: save when should_stop is true"
                )
            self._stop.acknowledge(saved)
            facts["step"] = saved
        what = "stopped" if self._stopping else "end"
        self._events.write(what, metrics=self._metrics.last, best=None, **facts)
        self.close()

    def close(self) -> None:
        """Flush, and write no more. Without `finish` the run is not recorded as completed."""
        if self._open:
            self._open = False
            if self._saving is not None:
                self._saving.end()
            self._progress.end()
            self._metrics.close()
            self._events.close()

    def give_up(self, error: Superseded) -> None:
        """End because another attempt has the run now: print one line, and write no more."""
        print(error.message, file=sys.stderr, flush=True)
        self.close()

    def __enter__(self) -> "Run":
        return self

    def __exit__(
        self, kind: type | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.finish()
        else:
            self.close()


def init(settings: object = None, /, **defaults: Any) -> Run:
    """Start a run, or join the one that rampup has started.

    `settings` is a dict or argparse's Namespace. It and `defaults` are used for settings that
    neither the command line nor rampup.toml gives. All are recorded with their origin.
    """
    context = read_context()
    run = _start(context, settings, defaults)
    if context.run_dir:
        _report_failures(run, RunDir(context.run_dir).attempt(context.attempt))
        sample_this_node(context)
    atexit.register(_finish_at_exit, run, context)
    return run


def _start(context: RankContext, given: object, defaults: dict[str, Any]) -> Run:
    settings = collect_settings(_read_config(context), given, defaults)
    try:
        if context.rank == 0 and context.run_dir:
            settings.record(RunDir(context.run_dir).attempt(context.attempt))
        return Run(context, settings)
    except StorageError as error:  # the run directory is at fault, not the script
        if context.run_dir is None:
            raise
        _exit_with(error, RunDir(context.run_dir).attempt(context.attempt), context.rank)


def _read_count(settings: OwnSettings, name: str) -> int | None:
    """Return the setting that says how long the loop will be, if the user has one of that name."""
    value = settings.values.get(name)
    return value if isinstance(value, int) else None


def _read_config(context: RankContext) -> Record:
    return RunDir(context.run_dir).config if context.run_dir else {}


def _open_store(context: RankContext) -> CheckpointStore | None:
    """Return the checkpoints of the run; what older attempts have half written is put out of their
    reach."""
    if context.run_dir is None:
        return None
    store = CheckpointStore(RunDir(context.run_dir), context.attempt)
    if context.rank == 0:
        store.take_over()
    return store


def _open_tensorboard(context: RankContext, settings: OwnSettings) -> NoTensorBoard:
    if context.rank != 0 or context.run_dir is None:
        return NoTensorBoard()
    return TensorBoard(RunDir(context.run_dir), context.attempt, settings.to_stored())


def _open_writers(
    context: RankContext, tensorboard: NoTensorBoard
) -> tuple[NoMetrics, NoEvents, NoProgress]:
    if context.rank != 0:
        return NoMetrics(), NoEvents(), NoProgress()
    if context.run_dir is None:
        return NoMetrics(), NoEvents(), Progress(None, OUTSIDE_LINE_EVERY_S)
    attempt = RunDir(context.run_dir).attempt(context.attempt)
    return (
        MetricsWriter(attempt, tensorboard),
        EventsWriter(attempt, tensorboard),
        Progress(attempt.progress_file),
    )


def _report_failures(run: Run, attempt: AttemptDir) -> None:
    """Keep an uncaught exception in the run directory before Python prints it."""
    usual = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if isinstance(error, Superseded):
            run.give_up(error)
            return
        if isinstance(error, RampupError):  # one line and a hint
            with contextlib.suppress(StorageError):
                run.close()
            _exit_with(error, attempt, run.rank)
        failure.record_failure(error, attempt, run.rank)
        usual(kind, error, trace)
        run.close()

    sys.excepthook = hook


def _finish_at_exit(run: Run, context: RankContext) -> None:
    try:
        run.finish()
    except Superseded as error:
        run.give_up(error)
    except Exception as error:  # at exit Python would print it and leave with 0
        if context.run_dir is None:
            raise
        _exit_with(error, RunDir(context.run_dir).attempt(context.attempt), run.rank)


def _exit_with(error: Exception, attempt: AttemptDir, rank: int) -> NoReturn:
    """End this process now: Python offers no other way to choose the exit code from a hook."""
    os._exit(failure.report_failure(error, attempt, rank))
