"""The job script: pure text from a RunSpec, the same every time. docs/job-script.md explains it
rule by rule.

It needs nothing of rampup on the compute nodes but the run directory: `sbatch job.sh` works by
hand. No value of the user's program is in it; those are read from config.json by rank.py. The lines
that start the ranks are the launcher's.

Ranks that stopped cleanly end with 0 and leave one word in attempts/<n>/again. Starting the run
again is the script's business, not Python's: it has nothing to unlearn when a rank hangs, and needs
no scontrol inside a container. docs/reliability.md explains it.
"""

import shlex
import sys
from pathlib import Path

from rampup import __version__, after
from rampup.core import software
from rampup.core.shell import fill
from rampup.core.spec import RunSpec
from rampup.errors import Refused
from rampup.launchers import find_launcher
from rampup.schedulers.slurm.sbatch_options import directive, options_of

SCRIPTS = Path(__file__).with_name("scripts")


def render(
    spec: RunSpec,
    run_dir: Path,
    python: str = sys.executable,
    version: str = __version__,
) -> str:
    """The text of job.sh for a run that will live in `run_dir`; `start_ranks` are the launcher's
    lines."""
    if spec.resources.devices is not None:
        raise Refused(
            f"devices = {spec.resources.devices}: on a cluster Slurm chooses the GPUs",
            "ask for a number of them, --gpus-per-node N, and leave out --devices (or use --devices none)",
        )
    run_id = run_dir.name.rpartition("-")[2]
    cluster, resources = spec.cluster, spec.resources
    asked = options_of(spec, run_dir, run_id)
    chosen = software.of(spec, run_dir)
    return fill(
        SCRIPTS / "job.sh",
        {
            "run_id": run_id,
            "version": version,
            "directives": "\n".join(directive(key, value) for key, value in asked.items()),
            "home": software.home(cluster.home, cluster.name),
            "run_dir": shlex.quote(str(run_dir)),
            "python": shlex.quote(python),
            "master_suffix": shlex.quote(cluster.master_suffix) if cluster.master_suffix else "",
            "launcher": cluster.launcher,
            "world_size": resources.world_size,
            "waits": bool(spec.after),
            "never": after.NEVER_CODE,
            "after": ask_runs_before() if spec.after else "",
            "clock": clock(spec.lead_s),
            "checks_software": bool(chosen.modules or chosen.env),
            "not_ready": software.NOT_READY,
            "software": software.setup(chosen),
            "loads_modules": bool(chosen.modules),
            "start_ranks": find_launcher(cluster.launcher).start_ranks(spec),
            "smoke": spec.smoke and spec.kind == "engine",
            "ask": ask(),
            "requeue": requeue() if cluster.requeue else "",
            "counts_steps": not spec.program.resumes_itself,
            "names_progress": spec.program.resumes_itself and bool(spec.program.progress),
            "requeues": resources.requeues,
            "starts_allowed": resources.requeues + spec.timeouts_before,
        },
    )


def clock(lead_s: int) -> str:
    """Lines that leave in $stop_at when to stop; empty where nobody knows. They need $job and
    $started."""
    return fill(SCRIPTS / "clock.sh", {"lead_s": lead_s})


def ask() -> str:
    """Lines that ask Slurm what it does with the job: they set $seen, $restarts and $preempted."""
    return fill(SCRIPTS / "ask.sh", {})


def ask_runs_before() -> str:
    """Lines that ask the runs before this one, and go behind them again or set $refused."""
    return fill(SCRIPTS / "after.sh", {"behind": after.BEHIND_CODE, "never": after.NEVER_CODE})


def requeue() -> str:
    """Lines for a function that put the job back into the queue, and return if they could."""
    return fill(SCRIPTS / "requeue.sh", {})
