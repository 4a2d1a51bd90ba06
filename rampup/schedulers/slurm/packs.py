"""Runs of a study inside one job of Slurm, K at a time: the text of its script. Pure; called by
launch.py.

Each run has its own job script, which notices that it runs inside an allocation; the pack gives it
its share of the job, starts the next one when one has ended, and puts the whole job back into the
queue when the time is over and runs are left. How a run ended, and whether it was
cancelled or moved to another job, it reads from names and plain words in the run's own directory,
and never writes there.
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from rampup import __version__
from rampup.core.shell import fill
from rampup.core.spec import RunSpec
from rampup.errors import Refused
from rampup.launchers import find_launcher
from rampup.schedulers.slurm.arrays import OF_ONE_RUN
from rampup.schedulers.slurm.commands import SIZES
from rampup.schedulers.slurm.job_script import SCRIPTS, ask, clock, requeue
from rampup.schedulers.slurm.sbatch_options import directive, log_pattern, options_of

MEMORY = re.compile(r"(\d+)([KMGTP]?)B?", re.IGNORECASE)


def scale(spec: RunSpec, at_once: int) -> RunSpec:
    """What the job of a pack asks for: so many runs side by side."""
    if not find_launcher(spec.cluster.launcher).shares_jobs:
        raise Refused(
            f"--pack divides a job by srun, and {spec.cluster.launcher} takes all of it",
            "--launcher pmix, or no --pack",
        )
    resources = spec.resources
    mem = options_of(spec, Path("run"), "run").get("mem")
    more = replace(
        resources,
        tasks_per_node=at_once * resources.tasks_per_node,
        gpus_per_node=at_once * resources.gpus_per_node,
        mem=times(mem, at_once) if mem else None,
    )
    return replace(spec, resources=more)


def times(mem: str, count: int) -> str:
    found = MEMORY.fullmatch(mem)
    if found is None:
        raise Refused(f"mem = {mem!r} can't be multiplied for --pack {count}", "write --mem 16G")
    return f"{int(found[1]) * count}{found[2]}"


def share_of(spec: RunSpec) -> dict[str, str]:
    """Variables that keep a step inside its share of a job that runs have together."""
    count, kind = spec.resources.gpus_per_node, spec.cluster.gpu_type
    gpus = {"SLURM_GPUS_PER_NODE": f"{kind}:{count}" if kind else str(count)} if count else {}
    return {"SLURM_EXACT": "1", **gpus}


def script(
    study: str, folder: Path, name: str, spec: RunSpec, starts: Sequence[int], at_once: int
) -> str:
    """The text of the pack's script; `folder` has a link to each run, named by its number, and
    `starts` says of each which of its submissions this is."""
    of_job = options_of(scale(spec, at_once), folder, "run")
    options: Mapping[str, str] = {
        "job-name": name,
        "output": log_pattern(folder.parent, f"{folder.name}.log"),
        "open-mode": "append",
        **{key: value for key, value in of_job.items() if key not in OF_ONE_RUN},
    }
    share = share_of(spec)
    return fill(
        SCRIPTS / "pack.sh",
        {
            "count": len(starts),
            "study": study,
            "at_once": at_once,
            "version": __version__,
            "directives": "\n".join(directive(key, value) for key, value in options.items()),
            "folder": shlex.quote(str(folder)),
            "starts": " ".join(map(str, starts)),
            "sizes": " ".join(SIZES),
            "clock": clock(spec.lead_s),
            "exports": "\n".join(
                f"export {key}={shlex.quote(text)}" for key, text in share.items()
            ),
            "ask": ask(),
            "requeue": requeue() if spec.cluster.requeue else "",
        },
    )
