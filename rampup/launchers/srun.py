"""The `srun` launcher: one task per rank, each starts rank.py. Pure text for the job script."""

from rampup.core.spec import RunSpec
from rampup.launchers.base import cpus, loop, manners, sizes

COMMENT = """\
# One task per rank. --cpus-per-task again: not every version of Slurm hands it on from sbatch. --nodelist: rank 0 is
# where we say that it is. A rank that fails ends all of them (--kill-on-bad-exit), one that ends well leaves the
# others in peace (--wait=0)."""


def start_and_wait(spec: RunSpec, mpi: str = "") -> str:
    """The lines that start the ranks and leave their exit code in $code."""
    kind = f" --mpi={mpi}" if mpi else ""
    command = f"""\
srun {sizes(spec, spec.resources.tasks_per_node, cpus(spec))} \\
    {manners(spec)}{kind} --nodelist="$first\""""
    return loop(spec, COMMENT, command)
