"""What an engine gets: the settings, who it is among the ranks, and where to write. Built by the worker.

An engine never parses a scheduler's variables and never writes a file by itself: it does both through this record.
"""

from dataclasses import dataclass

from rampup.errors import RampupError
from rampup.records import Record
from rampup.rundir import RunDir
from rampup.runtime.checkpoint import CheckpointStore
from rampup.runtime.context import RankContext
from rampup.runtime.metrics import EventsWriter, MetricsWriter, NoEvents, NoMetrics
from rampup.runtime.phases import Phases
from rampup.runtime.progress import NoProgress, Progress
from rampup.runtime.settings import Settings
from rampup.runtime.watch import sample_this_node


@dataclass(frozen=True)
class Job:
    settings: Settings
    context: RankContext
    gpus_per_node: int
    metrics: NoMetrics
    events: NoEvents
    progress: NoProgress
    checkpoints: CheckpointStore
    phases: Phases

    def close(self) -> None:
        self.metrics.close()
        self.events.close()


@dataclass(frozen=True)
class Best:
    """The best value of the monitored metric, and where it was reached."""

    metric: str
    value: float
    epoch: int
    step: int


@dataclass(frozen=True)
class Outcome:
    """What an engine returns."""

    best: Best | None
    checkpoint: str | None
    """The name of the newest checkpoint."""


def open_job(run: RunDir, context: RankContext) -> tuple[Record, Job]:
    """The run's configuration, and the job of this rank."""
    config = run.config
    if not config:
        raise RampupError(f"no run in {run.path}: it has no readable config.json", "rampup list shows the runs")
    attempt = run.attempt(context.attempt)
    first = context.rank == 0
    job = Job(
        settings=Settings(config.get("train", {})),
        context=context,
        gpus_per_node=config.get("resources", {}).get("gpus_per_node") or 0,
        metrics=MetricsWriter(attempt) if first else NoMetrics(),
        events=EventsWriter(attempt) if first else NoEvents(),
        progress=Progress(attempt.progress_file) if first else NoProgress(),
        checkpoints=CheckpointStore(run, context.attempt),
        phases=Phases(context.started),
    )
    sample_this_node(context)
    return config, job
