"""The schedulers that there are, by name.

A new one is a class in a file or folder here and one entry in the table below, or an entry point
`rampup.schedulers` of another package; docs/add-a-scheduler.md shows both.
"""

from rampup.core.plugins import find_plugins
from rampup.errors import Refused, nearest
from rampup.schedulers.base import Scheduler
from rampup.schedulers.local import Local
from rampup.schedulers.slurm.scheduler import Slurm
from rampup.schedulers.spark.scheduler import Spark

SCHEDULERS: dict[str, Scheduler] = {
    scheduler.name: scheduler for scheduler in (Local(), Slurm(), Spark())
}


def find_recorded(name: object) -> Scheduler:
    """The scheduler that a run directory names. One that is missing or foreign there is taken for
    Slurm, whose words are in most records."""
    return SCHEDULERS.get(str(name), SCHEDULERS[Slurm.name])


def find_scheduler(name: str) -> Scheduler:
    if name not in SCHEDULERS:
        SCHEDULERS.update(find_plugins("rampup.schedulers", besides=SCHEDULERS))
    if name not in SCHEDULERS:
        raise Refused(f"unknown scheduler {name!r}", nearest(name, SCHEDULERS))
    return SCHEDULERS[name]
