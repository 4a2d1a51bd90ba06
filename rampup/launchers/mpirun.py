"""The `mpirun` launcher: Open MPI starts one rank.py per rank inside what Slurm granted. Pure text."""

from rampup.launchers.loop import loop
from rampup.spec import RunSpec

COMMENT = """\
# Open MPI asks Slurm itself for the nodes. Ranks fill one node after the other, so they are the same ones in every
# attempt. Threads are ours to place (--bind-to none). A rank that is told to end gets some seconds for its save, not
# one; Open MPI waits as long before SIGTERM as between it and SIGKILL."""


def start_and_wait(spec: RunSpec) -> str:
    resources = spec.resources
    command = f"""\
mpirun -np {resources.world_size} --map-by ppr:{resources.tasks_per_node}:node --bind-to none \\
    --mca odls_base_sigkill_timeout 5"""
    return loop(spec, COMMENT, command)
