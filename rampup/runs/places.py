"""Where to ask for the jobs of runs: the scheduler of each, as this reader knows it.

Only a profile of the reader says which Slurm is meant; a run says its name, and enough to compare
it. runs/state.py asks here once for all runs that it looks at. Nothing is written.
"""

import time
from collections.abc import Iterable
from typing import NamedTuple

from rampup.config.clusters import NotKnownHere, of_run
from rampup.core.spec import Cluster
from rampup.errors import RampupError
from rampup.rundir.files import RunDir
from rampup.rundir.records import Record
from rampup.rundir.trust import is_obeyed
from rampup.schedulers import find_recorded, find_scheduler
from rampup.schedulers.base import Answer, Scheduler


class Place(NamedTuple):
    """The scheduler of a job, as this reader knows it."""

    scheduler: Scheduler
    profile: Cluster | None
    """None where nobody can be asked."""
    problem: str = ""
    """Why a cluster that may well be there is not asked."""

    @property
    def key(self) -> tuple[object, ...]:
        """What is the same for all jobs that one question can be about."""
        if self.profile is None:
            return self.scheduler.name, self.problem
        return self.profile.name, self.profile.slurm_conf, self.profile.slurm_cluster


class Places:
    """The schedulers of many runs. Each profile is read once."""

    def __init__(self) -> None:
        self.known: dict[tuple[str, str, bool], Place] = {}

    def find(self, cluster: str, run: RunDir) -> Place:
        """Return where to ask for a job that a run was given to. From another directory its profile
        may not be seen; what somebody else's run says of it counts for nothing."""
        kept = run.config.get("cluster", {})
        named = (kept.get("name"), kept.get("slurm_conf"), kept.get("slurm_cluster"))
        key = (cluster, str(named), is_obeyed(run))
        if key not in self.known:
            self.known[key] = find_place(cluster, kept, key[2])
        return self.known[key]


def find_place(cluster: str, kept: Record, is_obeyed: bool) -> Place:
    try:
        profile = of_run(cluster, kept, is_obeyed)
        return Place(find_scheduler(profile.scheduler), profile)
    except NotKnownHere as error:
        return Place(find_recorded(kept.get("scheduler")), None, error.message)
    except RampupError:  # a sandbox that was taken down, and its jobs with it
        return Place(find_recorded(kept.get("scheduler")), None)


def ask(place: Place, keys: Iterable[str], fresh_s: float) -> Answer:
    if place.profile is None:
        return Answer({}, time.time(), place.problem, is_known=not place.problem)
    return place.scheduler.ask(place.profile, keys, fresh_s)
