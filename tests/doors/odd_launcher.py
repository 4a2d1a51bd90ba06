"""A launcher that exists only here, with a scheduler that knows it. A shell starts the ranks, and
tells each who it is as mpirun would."""

from rampup.launchers.base import Launcher
from rampup.schedulers.local import Local

START = """
for rank in $(seq 0 $(($1 - 1))); do
  ODD=1 OMPI_COMM_WORLD_RANK=$rank OMPI_COMM_WORLD_LOCAL_RANK=$rank OMPI_COMM_WORLD_SIZE=$1 \\
    OMPI_COMM_WORLD_LOCAL_SIZE=$1 OMPI_COMM_WORLD_NODE_RANK=0 "${@:2}" &
done
for rank in $(jobs -p); do wait "$rank" || exit; done
"""


class Odd(Launcher):
    name = "odd"
    program_here = "bash"

    def command_here(self, ranks: int) -> tuple[str, ...]:
        return ("bash", "-c", START, "odd", str(ranks))


class Here(Local):
    name = "here"
    launchers = ("odd",)


LAUNCHER = Odd()
SCHEDULER = Here()
