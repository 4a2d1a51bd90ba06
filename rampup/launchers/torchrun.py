"""The launcher `torchrun`: one agent of torch.distributed.run per node, which starts the ranks there.

rank.py becomes the agent (--agent), because only inside the task it is known which node this is;
the agent starts rank.py again for every rank. The rendezvous is static: with a dynamic one ranks
move between attempts. Pure text for the job script.
"""

from rampup.core.spec import Resources, RunSpec
from rampup.launchers.base import Launcher, count_cpus, render_loop
from rampup.launchers.srun import failure_and_binding_options, size_options

COMMENT = """\
# One task per node, with the CPUs of all its ranks: rank.py becomes an agent of torchrun (--agent), which starts
# rank.py for each rank of the node. --nodelist: rank 0 is on the node that we chose."""


class Torchrun(Launcher):
    name = "torchrun"
    binds_ranks = False  # the agent of a node has the CPUs of all its ranks

    def start_ranks(self, spec: RunSpec) -> str:
        command = f"""\
srun {size_options(self, spec.resources)} \\
    {failure_and_binding_options(self, spec)} --nodelist="$first\""""
        agent = f"--agent={spec.resources.tasks_per_node}"
        return render_loop(spec, COMMENT, command, (agent,))

    def tasks(self, resources: Resources) -> tuple[int, int]:
        return 1, resources.tasks_per_node * count_cpus(resources)
