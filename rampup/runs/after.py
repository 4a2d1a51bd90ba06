"""`--after RUN`: which runs a new one waits for. Those that have completed are no longer waited for,
and those that never will are refused. `rampup run` asks before anything is made."""

from collections.abc import Sequence

from rampup.core import processes
from rampup.core.spec import Before, RunSpec
from rampup.errors import Refused
from rampup.rundir import find
from rampup.rundir.files import RunDir
from rampup.runs.state import find_job, observe, state_for_sure
from rampup.schedulers import find_scheduler


def find_before(words: Sequence[str], spec: RunSpec) -> tuple[Before, ...]:
    """Return the runs to wait for, as the words of `--after` name them."""
    scheduler = find_scheduler(spec.cluster.scheduler)
    if words and not scheduler.can_wait:
        raise Refused(f"{scheduler.title} can't wait for other runs", "rampup wait RUN, then run")
    if words and any(
        word.partition("=")[0].strip("-") == "dependency" for word in spec.resources.slurm
    ):
        raise Refused("--after and --slurm dependency=... exclude each other", "use one of them")
    runs = [find.find(word) for text in words for word in text.split(",")]
    found = [name_before(run, spec) for run in dict.fromkeys(runs)]
    return tuple(before for before in found if before is not None)


def name_before(run: RunDir, spec: RunSpec) -> Before | None:
    """Return a run to wait for; None for one that has completed."""
    state = state_for_sure(run)
    if state.name == "completed":
        return None
    if state.ended:
        raise Refused(
            f"--after {run.id}: that run has {describe(state.name)}, so this one would never begin",
            f"rampup resume {run.id} first, or rampup why {run.id}",
        )
    cluster = run.config.get("cluster", {}).get("name")
    submitted = run.recorded("submitted") or {}
    job = find_job(observe(run), submitted)
    is_elsewhere = cluster != spec.cluster.name
    by_process = job is None and submitted.get("host") != processes.host()
    if is_elsewhere or by_process or (job is None and not spec_is_here(spec)):
        where = f"on {cluster}" if is_elsewhere else "as a process outside this queue"
        raise Refused(
            f"--after {run.id}: it runs {where}, and a run can wait only for runs in the same queue",
            f"rampup wait {run.id} && the same command without --after",
        )
    return Before(id=run.id, dir=str(run.path), job=job.job if job else "")


def spec_is_here(spec: RunSpec) -> bool:
    return find_scheduler(spec.cluster.scheduler).is_here


def describe(state: str) -> str:
    return {"failed": "failed", "timeout": "timed out"}.get(state, f"been {state}")
