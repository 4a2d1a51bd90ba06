"""A scheduler queues runs and says what became of them. This file has the role, and the records
that travel with it.

The rest of the control side speaks to a scheduler through these methods alone, and never asks for
its name. schedulers/__init__.py lists them; docs/add-a-scheduler.md shows how to add one.
"""

import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple

from msgspec import Struct, to_builtins

from rampup.core.finding import Finding
from rampup.core.spec import Cluster, RunSpec
from rampup.errors import Refused
from rampup.rundir import clocks
from rampup.rundir.files import RunDir
from rampup.rundir.records import Record

FRESH_S = 2.0
"""How old an answer about jobs may be, where nobody asks for a newer one."""
NO_SHARE: Mapping[str, str] = {}

End = Literal["completed", "failed", "cancelled", "timeout"]


class JobRef(NamedTuple):
    """Which job of which cluster is meant."""

    cluster: str
    job: str
    name: str


def job_key(job: str, name: str) -> str:
    """A job as answers name it. Ids alone are used again, by a scheduler that was set up anew;
    names end with the run's id."""
    return f"{job}:{name}"


class Command(NamedTuple):
    """What a scheduler starts on this machine itself."""

    argv: tuple[str, ...]
    env: dict[str, str]
    cwd: str


class Job(Struct, frozen=True):
    """What a scheduler says of a job: its own word, and what that means here."""

    state: str
    """The scheduler's own word, as it is recorded in the run."""
    reason: str = ""
    start: str = ""
    """When it started, or will at the latest guess."""
    nodes: str = ""

    @property
    def running(self) -> bool:
        raise NotImplementedError

    @property
    def ended(self) -> bool:
        raise NotImplementedError

    @property
    def end(self) -> End:
        """How a job ended that has ended."""
        raise NotImplementedError

    @property
    def cause(self) -> str:
        """Why the scheduler ended it; empty where it did not, or does not say."""
        return ""

    @property
    def ended_itself(self) -> bool:
        """Whether the job came to its own end, or is about to: then what it wrote down counts, and
        the scheduler knows no better."""
        raise NotImplementedError

    @property
    def waits_for(self) -> str:
        """Why it is pending, in words for people."""
        return self.reason


class Canceller(NamedTuple):
    """Who ended a job that rampup did not cancel."""

    user: int
    """The user's number."""
    command: str
    source: str
    """The command that shows it."""


class Answer(Struct):
    """What is known of jobs, by key, and how old that is. `problem` says why nothing newer could be
    had."""

    jobs: Mapping[str, Job]
    t: float = 0.0
    problem: str = ""
    is_known: bool = True
    """Whether the reader knows that cluster. If not, nobody was asked."""

    @property
    def age_s(self) -> float:
        return clocks.age(self.t)

    def is_fresh(self, fresh_s: float) -> bool:
        """Whether it is younger than that. One from the future is not: a clock was ahead."""
        return 0.0 <= time.time() - self.t < fresh_s


class Usage(Struct, frozen=True, kw_only=True):
    """What a finished run asked for and what it used. Memory is that of one node, as --mem counts
    it. What nobody measured is None."""

    source: str
    """`sacct`, or `samples`: our own."""
    wall_s: float
    time_limit_s: float | None = None
    cpus_per_rank: float | None = None
    cpus_busy: float | None = None
    """Of each rank, on average."""
    mem_asked_mb: float | None = None
    mem_used_mb: float | None = None


class Scheduler:
    """Queues runs, or starts them at once. The defaults are those of a scheduler without arrays,
    accounts and allocations."""

    name: ClassVar[str]
    title: ClassVar[str]
    """Its name as people write it."""
    launchers: ClassVar[tuple[str, ...]]
    """The launchers that can work inside what it grants."""
    signals_programs: ClassVar[bool] = False
    """Whether a command gets the signal that it asks for before it must end."""
    restarts_at_limit: ClassVar[bool] = False
    """Whether a run whose time is over starts again by itself."""
    is_here: ClassVar[bool] = False
    """Whether its runs are processes of this machine, so that what this machine has decides."""
    driven_here: ClassVar[bool] = False
    """Whether a process of this machine drives its runs, so that Ctrl-C ends them."""
    can_wait: ClassVar[bool] = False
    """Whether a run can wait for other runs of the same queue, `--after`."""
    logs: ClassVar[str] = "job.log"
    """Where in the run directory people find what it said."""

    # one run --------------------------------------------------------------------------------------

    def render_script(self, spec: RunSpec, run_dir: Path) -> str | None:
        """The text of job.sh; None where a run is not started by a script. Pure."""
        return None

    def render_command(self, spec: RunSpec, run_dir: Path) -> Command | None:
        """What is started on this machine; None where a job is submitted. Pure."""
        return None

    def submit(
        self, run: RunDir, spec: RunSpec, detach: bool, share: Mapping[str, str] = NO_SHARE
    ) -> subprocess.Popen[bytes] | None:
        """Hand the run over, once, and record it. A process on this machine is returned, for a
        caller that waits for it. `share` are variables for a run that is one of several inside one
        grant."""
        raise NotImplementedError

    def cancel(self, run: RunDir, cluster: Cluster, job: JobRef | None) -> None:
        """End every job or process of the run."""
        raise NotImplementedError

    def stop_process(self, run: RunDir) -> None:
        """End the process of this machine that has the run, and with it all ranks."""
        from rampup.schedulers.local import stop_supervisor  # which knows this role

        stop_supervisor(run)

    def is_inside(self, cluster: Cluster) -> bool:
        """Whether this process runs inside a grant of that cluster, so that a run starts at once."""
        return self.is_here

    def grants_this_process(self) -> bool:
        """Whether this process runs inside a grant of any of its clusters."""
        return False

    # what became of jobs --------------------------------------------------------------------------

    def ask(self, cluster: Cluster, keys: Iterable[str], fresh_s: float) -> Answer:
        """What is known of these jobs, not older than `fresh_s` if the scheduler answers."""
        return Answer({}, time.time())

    def restore_job(self, state: str, reason: str) -> Job:
        """A job as a run has recorded it, which the scheduler may have forgotten."""
        raise NotImplementedError

    def find_jobs(
        self, cluster: Cluster, names: Sequence[str], patient: bool
    ) -> Mapping[str, Sequence[str]]:
        """The ids of the jobs with each of these names, the oldest first: what a submission whose
        answer was lost has made. A verb that only reads is not `patient`: it shows what it has."""
        return {}

    def read_usage(self, cluster: Cluster, job: str, ranks: int) -> Usage | None:
        """What a finished job asked for and used, by the scheduler's own accounts."""
        return None

    def find_canceller(self, cluster: Cluster, job: str) -> Canceller | None:
        """The user who cancelled a job, where the scheduler keeps accounts."""
        return None

    # checks ---------------------------------------------------------------------------------------

    def check(self, spec: RunSpec, run_dir: Path, script: str | None) -> Iterator[Finding]:
        """All that can be said of a run before it is submitted, the cheapest first; `run_dir` is
        where it will live."""
        return iter(())

    def find_absence(self, cluster: Cluster) -> str:
        """Why the cluster can't be asked from this machine; empty where it answers."""
        return ""

    def find_unsaid(self, spec: RunSpec, run_dir: Path) -> list[str]:
        """The settings of [resources] that the site wants of every run, and this one lacks."""
        return []

    def survey(self, cluster: Cluster, runs_root: Path) -> Iterator[Finding]:
        """All that `doctor` says of the cluster."""
        return iter(())

    # many runs as few jobs ------------------------------------------------------------------------

    def read_array_limit(self, cluster: Cluster) -> int:
        """The number of tasks that an array may have."""
        raise self._refuse_study(cluster)

    def describe_request(self, spec: RunSpec, root: Path) -> tuple[tuple[str, str], ...]:
        """What a run asks for besides what is its own: runs that ask for the same can be one
        array."""
        asked = to_builtins(spec.resources)
        return tuple((key, str(value)) for key, value in sorted(asked.items()))

    def render_array(
        self,
        study: str,
        folder: Path,
        name: str,
        request: Sequence[tuple[str, str]],
        count: int,
        throttle: int | None,
    ) -> str:
        """The script of an array; `folder` has a link to each run, named by its task."""
        raise NotImplementedError

    def render_pack(
        self,
        study: str,
        folder: Path,
        name: str,
        spec: RunSpec,
        starts: Sequence[int],
        at_once: int,
    ) -> str:
        """The script of one job for many runs; `folder` has a link to each, by its number, and
        `starts` says of each which of its submissions this is."""
        raise NotImplementedError

    def scale(self, spec: RunSpec, at_once: int) -> RunSpec:
        """What a job asks for that has so many such runs side by side."""
        raise self._refuse_study(spec.cluster)

    def share(self, spec: RunSpec) -> Mapping[str, str]:
        """Variables that keep a run inside its share of a grant that runs have together."""
        return NO_SHARE

    def submit_script(
        self, cluster: Cluster, script: Path, name: str, announce: Callable[[Record], None]
    ) -> str:
        """The id of the one job of that name. `announce` writes down the process that is about to
        submit it."""
        raise NotImplementedError

    def cancel_jobs(self, cluster: Cluster, name: str, jobs: Sequence[str]) -> None:
        """End these jobs, if they have that name."""
        raise NotImplementedError

    def _refuse_study(self, cluster: Cluster) -> Refused:
        return Refused(
            f"{self.title} has no arrays: cluster {cluster.name} can't take a study",
            "start its runs one by one with rampup run",
        )
