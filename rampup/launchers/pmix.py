"""The `pmix` launcher: as `srun`, for programs of MPI, which find each other through Slurm's PMIx.
Pure text.

Only where the site lists it (`srun --mpi=list`), and never for plain torch, which has no use for
it.
"""

from rampup.core.spec import RunSpec
from rampup.launchers import srun


def start_and_wait(spec: RunSpec) -> str:
    return srun.start_and_wait(spec, mpi="pmix")
