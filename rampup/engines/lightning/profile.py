"""`profiler=simple|advanced|pytorch`: Lightning's table of where the time goes, as a file of the
attempt, by rank 0."""

from pathlib import Path

from lightning.pytorch.profilers import AdvancedProfiler, Profiler, PyTorchProfiler, SimpleProfiler

from rampup.runtime.job import Job
from rampup.runtime.storage import say

KINDS: dict[str, type[Profiler]] = {
    "simple": SimpleProfiler,
    "advanced": AdvancedProfiler,
    "pytorch": PyTorchProfiler,
}
NAME = "profile"


def build(job: Job) -> Profiler | None:
    wish = job.settings.get("profiler")
    if not wish or job.context.rank != 0:
        return None
    return KINDS[wish](dirpath=_folder(job), filename=NAME)


def tell(job: Job) -> None:
    """Where the tables are; none when nobody asked."""
    for path in sorted(_folder(job).glob(f"*{NAME}*.txt")) if job.context.rank == 0 else ():
        job.events.write("profile", file=path.name)
        say(f"profile: {path}")


def _folder(job: Job) -> Path:
    return job.checkpoints.run.attempt(job.context.attempt).path
