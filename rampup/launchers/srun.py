"""The launchers `srun` and `pmix`: one task of Slurm per rank, each starts rank.py.

Pure text for the job script. `pmix` is for programs of MPI, which find each other through Slurm's
PMIx: only where the site lists it (`srun --mpi=list`), and never for plain torch.
"""

from typing import ClassVar

from rampup.core.spec import RunSpec
from rampup.launchers.base import (
    Launcher,
    failure_and_binding_options,
    render_loop,
    size_options,
)

PROGRAM = "srun"
"""What the processes of a step are called, besides the ranks themselves."""
COMMENT = """\
# One task per rank. --cpus-per-task again: not every version of Slurm hands it on from sbatch. --nodelist: rank 0 is
# where we say that it is. A rank that fails ends all of them (--kill-on-bad-exit), one that ends well leaves the
# others in peace (--wait=0)."""


class Srun(Launcher):
    name = "srun"
    mpi: ClassVar[str] = ""
    """The kind of MPI that srun starts the ranks for."""

    def start_ranks(self, spec: RunSpec) -> str:
        kind = f" --mpi={self.mpi}" if self.mpi else ""
        command = f"""\
srun {size_options(self, spec.resources)} \\
    {failure_and_binding_options(self, spec)}{kind} --nodelist="$first\""""
        return render_loop(spec, COMMENT, command)

    def knows_mpi(self, spec: RunSpec) -> bool:
        return self.starts_mpi or "SLURM_MPI_TYPE" in spec.cluster.env


class Pmix(Srun):
    name = "pmix"
    mpi = "pmix"
    starts_mpi = True
