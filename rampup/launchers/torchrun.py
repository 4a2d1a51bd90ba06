"""The `torchrun` launcher: one agent of torch.distributed.run per node, which starts the ranks
there. Pure text.

rank.py becomes the agent (--agent), because only inside the task it is known which node this is;
the agent starts rank.py again for every rank. The rendezvous is static: with a dynamic one ranks
move between attempts.
"""

from rampup.core.spec import RunSpec
from rampup.launchers.base import cpus, loop, manners, sizes

COMMENT = """\
# One task per node, with the CPUs of all its ranks: rank.py becomes an agent of torchrun (--agent), which starts
# rank.py for each rank of the node. --nodelist: rank 0 is where we say that it is."""


def start_and_wait(spec: RunSpec) -> str:
    ranks = spec.resources.tasks_per_node
    command = f"""\
srun {sizes(spec, 1, ranks * cpus(spec))} \\
    {manners(spec)} --nodelist="$first\""""
    return loop(spec, COMMENT, command, (f"--agent={ranks}",))
