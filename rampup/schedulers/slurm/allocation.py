"""Inside an allocation of Slurm (salloc, an interactive node): the job script runs here and now,
its srun uses what has been granted. The same script as under sbatch, so all else is the same
too."""

import os
import subprocess
from collections.abc import Mapping

from rampup.core import processes
from rampup.core.spec import Cluster
from rampup.rundir.files import RunDir

SIZES = (
    *(
        "SLURM_NTASKS",
        "SLURM_NPROCS",
        "SLURM_NTASKS_PER_NODE",
        "SLURM_CPUS_PER_TASK",
        "SLURM_TASKS_PER_NODE",
    ),
    *("SLURM_GPUS", "SLURM_GRES"),
)
"""Inherited by srun they would win over the options of the script: the allocation may be larger
than the run."""


def is_here(cluster: Cluster) -> bool:
    """Whether this process runs inside an allocation of that cluster."""
    return is_any() and cluster.slurm_conf in (None, os.environ.get("SLURM_CONF"))


def is_any() -> bool:
    """Whether this process runs inside an allocation of some Slurm."""
    return "SLURM_JOB_ID" in os.environ


def start(run: RunDir, cluster: Cluster, share: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """`share` are variables for srun, where several runs have the allocation together."""
    job = os.environ["SLURM_JOB_ID"]
    env = {name: value for name, value in os.environ.items() if name not in SIZES} | dict(share)
    with open(run.slurm_log(job), "ab") as log:
        script = subprocess.Popen(
            # as its first line says: a login shell has `module`
            ["bash", "-l", str(run.job_script)],
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # Ctrl-C at the terminal reaches us alone
        )
    whose = {
        "allocation": job,
        "job_name": os.environ.get("SLURM_JOB_NAME", ""),
        "cluster": cluster.name,
    }
    run.record("submitted", scheduler="local", **whose, **processes.identify(script.pid))
    return script
