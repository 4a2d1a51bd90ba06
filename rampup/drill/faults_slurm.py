"""Faults that the owner of a job may cause on any cluster with Slurm: signals, a shorter time
limit, a requeue."""

import contextlib
import time
from collections.abc import Iterator

from msgspec.structs import replace

from rampup.drill.scene import Scene, TooLate
from rampup.errors import SchedulerError

LIMIT = "0:30:00"
LEAD_S = 60
"""A limit that is lowered to the next minute is then announced at once."""
LONG_ENOUGH_S = 70.0
"""Of a training that still goes on when Slurm comes to announce it: it looks every half a
minute."""


def kill_step(scene: Scene) -> None:
    """kill -9 of all ranks, by Slurm."""
    scene.wait_for_moment()
    job = scene.stage.job(scene.run)
    with contextlib.suppress(SchedulerError):  # its step has not begun: there is nobody to kill yet
        scene.stage.slurm("scancel", "--signal=KILL", f"{job}.0")
    scene.note_saving()


@contextlib.contextmanager
def time_limit(scene: Scene) -> Iterator[None]:
    asked = scene.spec.resources
    scene.spec = replace(
        scene.spec, resources=replace(asked, time=asked.time or LIMIT, lead_s=LEAD_S)
    )
    yield


def reach_time_limit(scene: Scene) -> None:
    """The limit is lowered to the next minute, and the warning is due. To a shorter run it is sent
    by hand."""
    scene.wait_for_training()
    job = scene.stage.job(scene.run)
    long_enough = scene.whole.train_s >= LONG_ENOUGH_S
    if long_enough:
        spent_min = int((time.time() - scene.attempt.facts["started"]) // 60)
        scene.stage.slurm("scontrol", "update", f"jobid={job}", f"timelimit={spent_min + 1}")
    else:
        scene.stage.slurm("scancel", "--signal=USR2", job)
    scene.wait(lambda: _is_over(scene), "the ranks stop before the time limit", may_end=True)
    if long_enough:
        # where only an administrator may, the next attempt is as short
        with contextlib.suppress(SchedulerError):
            scene.stage.slurm(
                "scontrol", "update", f"jobid={job}", f"timelimit={scene.spec.resources.time}"
            )


def _is_over(scene: Scene) -> bool:
    if scene.attempt.facts.get("outcome") == "completed":
        raise TooLate
    return "outcome" in scene.attempt.facts or scene.state().ended


def requeue(scene: Scene) -> None:
    """What Slurm does when it preempts a job without grace."""
    scene.wait_for_training()
    scene.stage.slurm("scontrol", "requeue", scene.stage.job(scene.run))
