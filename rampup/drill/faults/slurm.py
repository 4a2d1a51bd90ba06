"""Faults that the owner of a job may cause on any cluster with Slurm: signals, a shorter time
limit, a requeue.

Each fault is a function of a FaultRun whose run has been submitted, or a context around all of it.
They use Slurm's own programs, never /proc, so they work on sandboxes and on real clusters.
"""

import contextlib
import time
from collections.abc import Iterator

from msgspec.structs import replace

from rampup.core.units import parse_time_limit_s
from rampup.drill.fault_run import FaultRun, TooLate
from rampup.errors import SchedulerError
from rampup.schedulers.slurm.sbatch_options import clock

DEFAULT_LIMIT = "0:30:00"
LEAD_S = 60
"""With this lead, a limit that is lowered to the next minute is announced at once."""
LONG_ENOUGH_S = 70.0
"""A training that lasts this long still runs when Slurm, which looks every half a minute, announces
the new limit."""


def kill_step(fault_run: FaultRun) -> None:
    """Let Slurm kill all ranks with kill -9."""
    fault_run.wait_for_moment()
    job = fault_run.runner.current_job(fault_run.run)
    with contextlib.suppress(SchedulerError):  # its step has not begun: there is nothing to kill
        fault_run.runner.call_slurm("scancel", "--signal=KILL", f"{job}.0")
    fault_run.record_in_save()


@contextlib.contextmanager
def set_time_limit(fault_run: FaultRun) -> Iterator[None]:
    """Give the run a limit that can be lowered, and a lead that announces it at once."""
    asked = fault_run.spec.resources
    limited = replace(asked, time=asked.time or DEFAULT_LIMIT, lead_s=LEAD_S)
    fault_run.spec = replace(fault_run.spec, resources=limited)
    yield


def reach_time_limit(fault_run: FaultRun) -> None:
    """Lower the limit to the next minute, so that the warning is due.

    A run that is too short for this gets the signal of the warning instead.
    """
    fault_run.wait_for_training()
    runner = fault_run.runner
    job = runner.current_job(fault_run.run)
    long_enough = fault_run.baseline.train_s >= LONG_ENOUGH_S
    if long_enough:
        spent_min = int((time.time() - fault_run.first_attempt.facts["started"]) // 60)
        runner.call_slurm("scontrol", "update", f"jobid={job}", f"timelimit={spent_min + 1}")
    else:
        runner.call_slurm("scancel", "--signal=USR2", job)
    fault_run.wait(
        lambda: _is_over(fault_run), "the ranks stop before the time limit", may_end=True
    )
    if long_enough:
        # where only an administrator may raise it, the next attempt is as short
        limit = clock(parse_time_limit_s(fault_run.spec.resources.time or DEFAULT_LIMIT))
        with contextlib.suppress(SchedulerError):
            runner.call_slurm("scontrol", "update", f"jobid={job}", f"timelimit={limit}")


def _is_over(fault_run: FaultRun) -> bool:
    facts = fault_run.first_attempt.facts
    if facts.get("outcome") == "completed":
        raise TooLate
    return "outcome" in facts or fault_run.state().ended


def requeue(fault_run: FaultRun) -> None:
    """Requeue the job, as Slurm does when it preempts a job without grace."""
    fault_run.wait_for_training()
    runner = fault_run.runner
    runner.call_slurm("scontrol", "requeue", runner.current_job(fault_run.run))
