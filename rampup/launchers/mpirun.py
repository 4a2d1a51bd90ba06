"""The launcher `mpirun`: Open MPI starts one rank.py per rank, inside what Slurm granted or on this
machine.

Words alone: the job script says them, or the supervisor does.
"""

import os

from rampup.core.spec import RunSpec
from rampup.launchers.base import Launcher, render_loop

COMMENT = """\
# Open MPI asks Slurm itself for the nodes. Ranks fill one node after the other, so they are the same ones in every
# attempt. Threads are ours to place (--bind-to none). A rank that must end gets some seconds for its save, not
# one; Open MPI waits as long before SIGTERM as between it and SIGKILL."""


class Mpirun(Launcher):
    name = "mpirun"
    starts_mpi = True
    program_here = "mpirun"
    shares_jobs = False

    def start_ranks(self, spec: RunSpec) -> str:
        resources = spec.resources
        command = f"""\
mpirun -np {resources.world_size} --map-by ppr:{resources.tasks_per_node}:node --bind-to none \\
    --mca odls_base_sigkill_timeout 5"""
        return render_loop(spec, COMMENT, command)

    def command_here(self, ranks: int) -> tuple[str, ...]:
        """Also inside an allocation of Slurm, and with more ranks than cores. A rank that waits for
        others would keep a core busy that others use too."""
        alone = ("--mca", "plm", "isolated", "--mca", "ras", "^slurm", "--oversubscribe")
        kind = ("--mca", "mpi_yield_when_idle", "1")
        root = ("--allow-run-as-root",) if os.getuid() == 0 else ()  # as in most containers
        patient = ("--bind-to", "none", "--mca", "odls_base_sigkill_timeout", "5")
        return ("mpirun", "-np", str(ranks), *alone, *kind, *patient, *root)
