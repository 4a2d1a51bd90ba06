"""The launchers `srun` and `pmix`: one task of Slurm per rank, each starts rank.py.

Pure text for the job script; torchrun.py uses the options of srun too. `pmix` is for programs of MPI,
which find each other through Slurm's PMIx: only where the site lists it (`srun --mpi=list`), and
never for plain torch.
"""

import shlex
from typing import ClassVar

from rampup.core.spec import Resources, RunSpec
from rampup.errors import Refused
from rampup.launchers.base import Launcher, render_loop

PROGRAM = "srun"
"""What the processes of a step are called, besides the ranks themselves."""
COMMENT = """\
# One task per rank. --cpus-per-task again: not every version of Slurm hands it on from sbatch. --nodelist: rank 0 is
# on the node that we chose. A rank that fails ends all of them (--kill-on-bad-exit), one that succeeds does not
# stop the others (--wait=0)."""
BY_ANOTHER_KEY = {
    **dict.fromkeys(
        ("nodes", "ntasks", "ntasks-per-node", "tasks-per-node"), "--nodes and --tasks-per-node"
    ),
    **dict.fromkeys(
        ("cpus-per-task", "nodelist", "kill-on-bad-exit", "wait", "jobid"), "rampup says it"
    ),
    "cpu-bind": "the key cpu_bind",
    "hint": "the key hint",
    "mpi": "the launcher pmix",
}
"""Options of srun that a profile's `srun` can't have, and the key to use instead."""


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
        return self.starts_mpi or "SLURM_MPI_TYPE" in spec.cluster.variables


class Pmix(Srun):
    name = "pmix"
    mpi = "pmix"
    starts_mpi = True


def size_options(launcher: Launcher, resources: Resources) -> str:
    """The size of the step for srun: --cpus-per-task again, because not every version of Slurm
    hands it on from sbatch."""
    tasks_per_node, cpus_per_task = launcher.tasks(resources)
    tasks = resources.nodes * tasks_per_node
    return (
        f"--nodes={resources.nodes} --ntasks={tasks} --ntasks-per-node={tasks_per_node}"
        f" --cpus-per-task={cpus_per_task}"
    )


def failure_and_binding_options(launcher: Launcher, spec: RunSpec) -> str:
    """A rank that fails ends all of them, one that ends well leaves the others alone; then the
    options of the site."""
    words = ["--kill-on-bad-exit=1", "--wait=0"]
    if spec.cluster.cpu_bind and launcher.binds_ranks:
        words.append(f"--cpu-bind={spec.cluster.cpu_bind}")
    elif spec.cluster.hint:  # the two exclude each other on one command line
        words.append(f"--hint={spec.cluster.hint}")
    further = f" \\\n    {shlex.join(site_options(spec))}" if spec.cluster.srun else ""
    return shlex.join(words) + further


def site_options(spec: RunSpec) -> list[str]:
    """The profile's `srun` as it is; an option that a launcher says itself is refused."""
    for word in spec.cluster.srun:
        name = word.removeprefix("--").partition("=")[0]
        if not word.startswith("--") or not name or not word.isprintable():
            hint = 'each is a long option in one word: srun = ["--distribution=block:block"]'
            raise Refused(
                f"{word!r} in srun of cluster {spec.cluster.name} is not an option of srun", hint
            )
        for own, instead in BY_ANOTHER_KEY.items():
            if own.startswith(name):  # srun takes the beginning of a name for the whole
                raise Refused(
                    f"{word!r} can't stand in srun of cluster {spec.cluster.name}", instead
                )
    return spec.cluster.srun
