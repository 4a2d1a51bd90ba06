"""Calling Slurm's programs: with a clean environment, a time limit, and errors that a person
understands."""

import os
import subprocess

from rampup.core.spec import Cluster
from rampup.errors import SchedulerError

FOREIGN = (
    "SLURM_",
    "SBATCH_",
    "SRUN_",
    "SALLOC_",
    "SQUEUE_",
    "SACCT_",
    "PMI_",
    "PMIX_",
    "OMPI_",
    "RAMPUP_",
)
RANK_VARIABLES = "RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE GROUP_RANK MASTER_ADDR MASTER_PORT TF_CONFIG GLOO_SOCKET_IFNAME"
"""Left over from a job that we were started in; sbatch and the ranks would believe them."""


class SchedulerTimeout(SchedulerError):
    """No answer in time: what was asked for may have happened all the same."""


def clean_environment(cluster: Cluster) -> dict[str, str]:
    """The user's environment without what changes a request. What says which Slurm is set anew."""
    dropped = set(RANK_VARIABLES.split())
    kept = {
        name: text
        for name, text in os.environ.items()
        if not name.startswith(FOREIGN) and name not in dropped
    }
    which = {
        "SLURM_CONF": cluster.slurm_conf or os.environ.get("SLURM_CONF"),
        "SLURM_CLUSTERS": cluster.slurm_cluster,
    }
    return {**kept, **{name: text for name, text in which.items() if text}}


def call(cluster: Cluster, argv: list[str], timeout_s: float) -> subprocess.CompletedProcess[str]:
    """Run one of Slurm's programs. A missing program or no answer in time is a SchedulerError."""
    env = clean_environment(cluster)
    # it reads that in the script; a variable would go on into the job, and into its srun
    if argv[0] == "sbatch":
        env.pop("SLURM_CLUSTERS", None)
    if argv[0] == "sacct" and cluster.slurm_cluster:  # the one that knows no such variable
        argv = ["sacct", f"--clusters={cluster.slurm_cluster}", *argv[1:]]
    try:
        return subprocess.run(
            argv,
            env=env,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            stdin=subprocess.DEVNULL,
        )
    except FileNotFoundError:
        raise SchedulerError(
            f"{argv[0]} is not on PATH: there is no Slurm here",
            "run it on a login node, or rampup sandbox up",
        ) from None
    except subprocess.TimeoutExpired:
        raise SchedulerTimeout(
            f"{argv[0]} gave no answer in {timeout_s:g} s", f"is {cluster.name} up? scontrol ping"
        ) from None
