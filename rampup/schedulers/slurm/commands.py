"""Calling Slurm's programs: with a clean environment, a time limit, and errors that a person
understands."""

import os
import subprocess
from collections.abc import Sequence
from subprocess import PIPE

from rampup.core.spec import Cluster
from rampup.errors import SchedulerError
from rampup.schedulers.held_start import Gate

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
SIZES = (
    "SLURM_NTASKS",
    "SLURM_NPROCS",
    "SLURM_NTASKS_PER_NODE",
    "SLURM_CPUS_PER_TASK",
    "SLURM_TASKS_PER_NODE",
    "SLURM_GPUS",
    "SLURM_GRES",
)
"""Inherited by srun they would win over the options of the script: the allocation may be larger
than the run."""


class SchedulerTimeout(SchedulerError):
    """No answer in time: what was asked for may have happened all the same."""


Done = subprocess.CompletedProcess[str]


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


def call(cluster: Cluster, argv: Sequence[str], timeout_s: float) -> Done:
    """Run one of Slurm's programs. A missing program or no answer in time is a SchedulerError."""
    gate = prepare(cluster, argv)
    gate.open()
    return finish(cluster, gate, timeout_s)


def prepare(cluster: Cluster, argv: Sequence[str]) -> Gate:
    """Start one of Slurm's programs, which waits to be let go: it can be recorded before."""
    env = clean_environment(cluster)
    # it reads that in the script; a variable would reach the job, and its srun
    if argv[0] == "sbatch":
        env.pop("SLURM_CLUSTERS", None)
    if argv[0] == "sacct" and cluster.slurm_cluster:  # the one that knows no such variable
        argv = ["sacct", f"--clusters={cluster.slurm_cluster}", *argv[1:]]
    try:
        return Gate(argv, env, stdout=PIPE, stderr=PIPE, text=True, errors="replace")
    except FileNotFoundError:
        raise SchedulerError(
            f"{argv[0]} is not on PATH: there is no Slurm here",
            "run it on a login node, or rampup sandbox up",
        ) from None
    except OSError as error:  # too many processes, or a command line that is too long
        raise SchedulerError(f"can't start {argv[0]}: {error.strerror}", "ulimit -a") from None


def finish(cluster: Cluster, gate: Gate, timeout_s: float) -> Done:
    """Wait for the answer of a program that was let go. Without one in time, the program and all
    that it has started are killed."""
    try:
        stdout, stderr = gate.process.communicate(timeout=timeout_s)
    except BaseException as error:
        gate.kill()
        if not isinstance(error, subprocess.TimeoutExpired):
            raise
        raise SchedulerTimeout(
            f"{gate.argv[0]} gave no answer in {timeout_s:g} s",
            f"is {cluster.name} up? scontrol ping",
        ) from None
    return Done(gate.argv, gate.process.returncode, stdout, stderr)
