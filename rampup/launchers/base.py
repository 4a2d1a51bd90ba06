"""A launcher starts the ranks of a run inside what the scheduler granted. This file has the role,
and the lines of a job script that are the same for every launcher.

A launcher is one small class: words for a job script, words for this machine, and a few facts. It
knows nothing of schedulers and starts nothing itself: the job script or the supervisor does.
launchers/__init__.py lists them all.
"""

from pathlib import Path
from typing import ClassVar

from rampup.core.shell import fill
from rampup.core.spec import Resources, RunSpec

PORT_TRIES = 3
LOOP = Path(__file__).with_name("ranks.sh")


class Launcher:
    """How the ranks of a run are started. The defaults are those of plain ranks."""

    name: ClassVar[str]
    starts_mpi: ClassVar[bool] = False
    """Whether MPI itself starts the ranks, so that programs of MPI find each other."""
    program_here: ClassVar[str] = ""
    """The program that must be on this machine where the launcher is used without a queue."""
    shares_jobs: ClassVar[bool] = True
    """Whether several runs can have their parts of one job."""
    binds_ranks: ClassVar[bool] = True
    """Whether each task of the job is one rank, which cpu_bind of a profile is about."""

    def start_ranks(self, spec: RunSpec) -> str:
        """The lines of a job script that start the ranks and leave their exit code in $code."""
        raise NotImplementedError(f"the launcher {self.name} works on this machine only")

    def command_here(self, ranks: int) -> tuple[str, ...]:
        """The words before rank.py on this machine; none where the supervisor starts each rank."""
        return ()

    def tasks(self, resources: Resources) -> tuple[int, int]:
        """Tasks on each node, and CPUs of each task, as the scheduler counts them."""
        return resources.tasks_per_node, count_cpus(resources)

    def knows_mpi(self, spec: RunSpec) -> bool:
        """Whether ranks that are started for this run find each other through MPI."""
        return self.starts_mpi


def render_loop(spec: RunSpec, comment: str, command: str, options: tuple[str, ...] = ()) -> str:
    """The loop around a launcher's command: `command` ends before rank.py, `options` are for
    rank.py."""
    becomes = spec.kind == "engine"
    words = options if becomes else (*options, "--stay")
    return fill(
        LOOP,
        {
            "comment": comment,
            "becomes": becomes,
            "tries": " ".join(map(str, range(PORT_TRIES))),
            "command": command,
            "cpus": count_cpus(spec.resources),
            "options": "".join(f" {word}" for word in words),
        },
    )


def count_cpus(resources: Resources) -> int:
    """The CPUs of one rank."""
    return resources.cpus_per_task or 1
