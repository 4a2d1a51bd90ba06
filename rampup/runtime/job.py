"""The record that an engine gets: the settings, which rank this is, and where to write. Built by the
worker.

An engine never parses a scheduler's variables and never writes a file by itself: it does both
through this record.
"""

import contextlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field

from rampup.core.settings import Settings
from rampup.core.units import parse_interval
from rampup.errors import RampupError
from rampup.rundir.files import RunDir
from rampup.rundir.records import Record, sync, write_text
from rampup.runtime.checkpoints.cadence import Cadence
from rampup.runtime.checkpoints.saving import NoSaving, Saving
from rampup.runtime.checkpoints.store import CheckpointStore
from rampup.runtime.context import RankContext
from rampup.runtime.stop import StopFlag, open_stop_flag
from rampup.runtime.storage import StorageError, guard_writes
from rampup.runtime.telemetry.metrics import EventsWriter, MetricsWriter, NoEvents, NoMetrics
from rampup.runtime.telemetry.mlperf import MlperfLog, NoMlperf
from rampup.runtime.telemetry.progress import NoProgress, Phases, Progress
from rampup.runtime.telemetry.sampler import sample_this_node
from rampup.runtime.telemetry.tensorboard import NoTensorBoard, TensorBoard


@dataclass(frozen=True)
class Job:
    settings: Settings
    context: RankContext
    gpus_per_node: int
    metrics: NoMetrics
    events: NoEvents
    progress: NoProgress
    checkpoints: CheckpointStore
    saving: NoSaving
    stop: StopFlag
    phases: Phases
    tensorboard: NoTensorBoard = field(default_factory=NoTensorBoard)
    """For an engine that has pictures or PR curves; rows of metrics get there by themselves."""
    mlperf: NoMlperf = field(default_factory=NoMlperf)
    """For a recipe that describes a benchmark of MLPerf."""
    smoke: bool = False
    """A trial: one step in each attempt."""
    local_disk: str = ""
    """The nodes' own disk, as the cluster's profile names it."""
    leaving: list[Callable[[bool], None]] = field(default_factory=list)
    """What to call when this rank is done: with true when the run will not be continued."""

    def write_evaluation(self, record: Record) -> None:
        """Replace the result of the validation before by the last one; by rank 0 alone."""
        file = self.checkpoints.run.attempt(self.context.attempt).evaluation_file
        write_text(file, json.dumps(record, allow_nan=False) + "\n")

    def close(self) -> None:
        if not self.events.ended:
            # the failure that brought us here is the one to report
            with contextlib.suppress(StorageError):
                self.events.write("phases", phases=self.phases.summary())
        self.metrics.close()
        self.mlperf.close()
        self.events.close()


@dataclass(frozen=True)
class Best:
    """The best value of the monitored metric, and where it was reached."""

    metric: str
    value: float
    epoch: int
    step: int
    mark: float | None = None
    """The last value that was an improvement by `min_delta`; None for a run without patience."""
    mark_epoch: int = 0


@dataclass(frozen=True)
class TrainingResult:
    """The result that an engine returns."""

    best: Best | None
    checkpoint: str | None
    """The name of the newest checkpoint."""
    stopped: bool = False
    """All is saved, but the run is not done: it was asked to stop."""
    step: int = 0
    """How far it came."""


def open_job(run: RunDir, context: RankContext) -> tuple[Record, Job]:
    """Return the run's configuration, and the job of this rank."""
    config = run.config
    if not config:
        raise RampupError(
            f"no run in {run.path}: it has no readable config.json", "rampup list shows the runs"
        )
    stop = open_stop_flag(context)  # before any thread is started
    attempt, settings = run.attempt(context.attempt), Settings(config.get("train", {}))
    first = context.rank == 0
    tensorboard = TensorBoard(run, context.attempt, settings) if first else NoTensorBoard()
    store = CheckpointStore(run, context.attempt)
    events = EventsWriter(attempt, tensorboard) if first else NoEvents()
    job = Job(
        settings=settings,
        context=context,
        gpus_per_node=config.get("resources", {}).get("gpus_per_node") or 0,
        metrics=MetricsWriter(attempt, tensorboard) if first else NoMetrics(),
        events=events,
        progress=Progress(attempt.progress_file) if first else NoProgress(),
        checkpoints=store,
        saving=open_saving(config, store, events, context),
        stop=stop,
        phases=Phases(context.started),
        tensorboard=tensorboard,
        mlperf=MlperfLog(run, events, context) if first else NoMlperf(),
        smoke=bool(config.get("smoke")),
        local_disk=config.get("cluster", {}).get("local_disk") or "",
    )
    sample_this_node(context)
    return config, job


def open_saving(
    config: Record, store: CheckpointStore, events: NoEvents, context: RankContext
) -> NoSaving:
    """Return the saving that the table [checkpoint] asks for; only rank 0 writes."""
    wanted, rows = config.get("checkpoint", {}), store.run.attempt(context.attempt).metrics_file
    cadence = Cadence(parse_interval(wanted.get("every", "auto")))

    def rows_to_disk() -> None:
        with guard_writes(rows):
            sync(rows)

    if context.rank != 0:
        return NoSaving(cadence)
    return Saving(store, cadence, wanted.get("keep", 2), events, rows_to_disk)
