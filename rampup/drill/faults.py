"""The catalogue: every fault of a drill, what is done, and what is promised of a run that meets
it."""

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager

from msgspec import Struct

from rampup.drill import faults_here, faults_sandbox, faults_slurm
from rampup.drill.place import Place
from rampup.drill.scene import Scene

Strike = Callable[[Scene], None]
Around = Callable[[Scene], AbstractContextManager[None]]


def nothing_around(scene: Scene) -> AbstractContextManager[None]:
    return contextlib.nullcontext()


class Fault(Struct, frozen=True):
    name: str
    about: str
    strike: Strike
    around: Around = nothing_around
    is_kill: bool = False
    """May come at any moment, and be repeated."""
    by_itself: bool = False
    """Where the site requeues, the run comes back without help."""


def faults_of(place: Place) -> list[Fault]:
    """All there are, with the means of the place."""
    launcher = "srun" if place.slurm else "the launcher"
    slurm, sandbox = place.slurm, place.kind == "sandbox"
    all_ranks = faults_slurm.kill_step if place.kind == "cluster" else faults_here.kill_all_ranks
    at_limit = faults_slurm.reach_time_limit if slurm else faults_here.wait_for_time_limit
    limited = faults_slurm.time_limit if slurm else faults_here.short_time_limit
    preempt = faults_sandbox.preempt if sandbox else faults_slurm.requeue
    return [
        Fault("rank-killed", "kill -9 of one rank", faults_here.kill_one_rank, is_kill=True),
        Fault("ranks-killed", "kill -9 of all ranks", all_ranks, is_kill=True),
        Fault("launcher-killed", f"kill -9 of {launcher}", faults_here.kill_launcher, is_kill=True),
        Fault("stop-and-resume", "rampup cancel --save, then resume", faults_here.stop_and_save),
        Fault("cancel-and-resume", "rampup cancel, then resume", faults_here.cancel),
        Fault("time-limit", "the time limit comes", at_limit, limited, by_itself=slurm),
        Fault("preempted", "another job takes the nodes at once", preempt, by_itself=True),
        Fault(
            "preempted-with-grace",
            "another job takes the nodes after a while",
            preempt,
            by_itself=True,
        ),
        Fault(
            "node-lost",
            "a node without rank 0 dies",
            faults_sandbox.lose_other_node,
            by_itself=True,
        ),
        Fault(
            "first-node-lost",
            "the node of rank 0 dies",
            faults_sandbox.lose_first_node,
            by_itself=True,
        ),
        Fault(
            "ghost",
            "Slurm loses the nodes, the ranks live on",
            faults_sandbox.make_ghosts,
            by_itself=True,
        ),
        Fault("torn-checkpoint", "the newest checkpoint is damaged", faults_here.tear_checkpoint),
        Fault(
            "full-disk",
            "the disk is full for a while",
            faults_here.fill_disk,
            faults_here.small_disk,
        ),
    ]
