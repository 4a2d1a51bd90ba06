"""Runs of a study as arrays of Slurm: one sbatch for up to MaxArraySize runs that ask for the same.
For launch.py.

A task of the array becomes the job script of its run, so all that is said of a job there holds for
the run alone: it is requeued, cancelled and resumed without the others. The folder beside the
script leads from a task to its run.
"""

import shlex
from collections.abc import Sequence
from pathlib import Path

from rampup import __version__
from rampup.core.shell import fill
from rampup.core.spec import Cluster, RunSpec
from rampup.rundir.files import slurm_log_name
from rampup.schedulers.slurm import site as slurm_site
from rampup.schedulers.slurm.job_script import SCRIPTS
from rampup.schedulers.slurm.sbatch_options import directive, log_pattern, options_of

DEFAULT_SIZE = 1001
OF_ONE_RUN = ("job-name", "output", "open-mode")


def largest(cluster: Cluster) -> int:
    """How many tasks an array may have."""
    return slurm_site.number(slurm_site.settings(cluster).get("MaxArraySize", "")) or DEFAULT_SIZE


def request_of(spec: RunSpec, root: Path) -> tuple[tuple[str, str], ...]:
    """What a run asks of sbatch, without what is its own: runs that ask for the same can be one
    array."""
    options = options_of(spec, root / "run", "run")
    return tuple((key, value) for key, value in options.items() if key not in OF_ONE_RUN)


def script(
    study: str,
    folder: Path,
    name: str,
    request: Sequence[tuple[str, str]],
    count: int,
    throttle: int | None,
) -> str:
    """The text of the array's script; `folder` has a link to each run, named by its task."""
    limit = f"%{throttle}" if throttle else ""
    options = {
        "job-name": name,
        "output": log_pattern(folder, f"%a/{slurm_log_name('%A_%a')}"),
        "open-mode": "append",
        **dict(request),
        "array": f"0-{count - 1}{limit}",
    }
    return fill(
        SCRIPTS / "array.sh",
        {
            "count": count,
            "study": study,
            "version": __version__,
            "directives": "\n".join(directive(key, value) for key, value in options.items()),
            "folder": shlex.quote(str(folder)),
        },
    )
