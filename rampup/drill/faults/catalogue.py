"""The catalogue of faults: what each one is called, what it does, and what a run must survive.

Drill and `rampup drill --dry-run` list the faults from here; docs/reliability.md describes them.
Whether a fault can be caused at some place is not decided here but in place.py.
"""

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager

from msgspec import Struct

from rampup.drill.fault_run import FaultRun
from rampup.drill.faults import here, sandbox, slurm
from rampup.drill.place import Place

Strike = Callable[[FaultRun], None]
Around = Callable[[FaultRun], AbstractContextManager[None]]


def nothing_around(fault_run: FaultRun) -> AbstractContextManager[None]:
    return contextlib.nullcontext()


class Fault(Struct, frozen=True):
    """One way to break a run."""

    name: str
    about: str
    strike: Strike
    """Waits for its moment in a run that has been started, then causes the fault."""
    around: Around = nothing_around
    """Prepares what the whole run needs, such as a disk that can be filled."""
    is_kill: bool = False
    """A kill may come at any moment, and be repeated."""
    recovers_unaided: bool = False
    """The run recovers without `rampup resume` where the site requeues jobs."""


def list_faults(place: Place) -> list[Fault]:
    """List all faults, each with the means that the place offers."""
    launcher = "srun" if place.on_slurm else "the launcher"
    on_slurm, in_sandbox = place.on_slurm, place.kind == "sandbox"
    all_ranks = slurm.kill_step if place.kind == "cluster" else here.kill_all_ranks
    at_limit = slurm.reach_time_limit if on_slurm else here.wait_for_time_limit
    limited = slurm.set_time_limit if on_slurm else here.set_short_time_limit
    preempt = sandbox.preempt if in_sandbox else slurm.requeue
    return [
        Fault("rank-killed", "kill -9 of one rank", here.kill_one_rank, is_kill=True),
        Fault("ranks-killed", "kill -9 of all ranks", all_ranks, is_kill=True),
        Fault("launcher-killed", f"kill -9 of {launcher}", here.kill_launcher, is_kill=True),
        Fault("stop-and-resume", "rampup cancel --save, then resume", here.stop_and_save),
        Fault("cancel-and-resume", "rampup cancel, then resume", here.cancel),
        Fault("time-limit", "the time limit comes", at_limit, limited, recovers_unaided=on_slurm),
        Fault(
            "preempted",
            "another job takes the nodes at once",
            preempt,
            recovers_unaided=True,
        ),
        Fault(
            "preempted-with-grace",
            "another job takes the nodes after a while",
            preempt,
            recovers_unaided=True,
        ),
        Fault(
            "node-lost",
            "a node without rank 0 dies",
            sandbox.lose_other_node,
            recovers_unaided=True,
        ),
        Fault(
            "first-node-lost",
            "the node of rank 0 dies",
            sandbox.lose_first_node,
            recovers_unaided=True,
        ),
        Fault(
            "ghost",
            "Slurm loses the nodes, the ranks live on",
            sandbox.make_ghosts,
            recovers_unaided=True,
        ),
        Fault("torn-checkpoint", "the newest checkpoint is damaged", here.tear_checkpoint),
        Fault("full-disk", "the disk is full for a while", here.fill_disk, here.small_disk),
    ]
