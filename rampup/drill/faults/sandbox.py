"""Faults that only the owner of a cluster can cause: preemption, lost nodes, and ghosts.

Used where the cluster is a sandbox. A lost node takes everything with it that a machine would:
slurmd, job steps and tasks. A ghost is a rank that lives on at a node that only Slurm has lost.
Drill calls `restore_nodes` before the next run.
"""

import time
from pathlib import Path

from rampup.drill import run_processes
from rampup.drill.fault_run import FaultRun, TooLate
from rampup.errors import SchedulerError
from rampup.rundir import checkpoints
from rampup.rundir.checkpoints import Damaged, Unreadable
from rampup.sandbox import daemons, leftovers
from rampup.sandbox.layout import Layout, node_names

PREEMPTOR = "rampup-drill-preemptor"
DOWN = ("down", "down*", "fail", "error")
USABLE = ("idle", "mix", "alloc")
NOTICED_WITHIN_S = 120.0
GHOSTS_END_WITHIN_S = 60.0
"""Counted from the start of the next attempt."""
CLOCK_ERROR_S = 1.0
"""How exactly the time of a file's change is known."""


def preempt(fault_run: FaultRun) -> None:
    """Submit a job to the urgent partition that takes the nodes of the run for a moment."""
    fault_run.wait_for_training()
    nodes = list_nodes(fault_run)
    options = [
        "--partition=urgent",
        "--exclusive",
        f"--nodes={len(nodes)}",
        f"--nodelist={','.join(nodes)}",
        "--time=1",
        f"--job-name={PREEMPTOR}",
        "--output=/dev/null",
    ]
    fault_run.runner.call_slurm("sbatch", *options, "--wrap=sleep 0.5")
    fault_run.wait(lambda: "outcome" in fault_run.first_attempt.facts, "it is preempted")


def lose_first_node(fault_run: FaultRun) -> None:
    fault_run.wait_for_training()
    _lose_node(fault_run, list_nodes(fault_run)[0])


def lose_other_node(fault_run: FaultRun) -> None:
    fault_run.wait_for_training()
    _lose_node(fault_run, list_nodes(fault_run)[-1])


def list_nodes(fault_run: FaultRun) -> list[str]:
    """List the nodes of the run in the order of its ranks."""
    nodes = fault_run.first_attempt.facts["nodes"]
    return fault_run.runner.call_slurm("scontrol", "show", "hostnames", nodes).split()


def _lose_node(fault_run: FaultRun, node: str) -> None:
    layout = get_layout(fault_run)
    while found := leftovers.find_processes(layout, node):
        run_processes.kill(found)
    fault_run.wait(
        lambda: is_down(fault_run, node),
        f"Slurm notices that {node} is gone",
        may_end=True,
        within_s=NOTICED_WITHIN_S,
    )
    daemons.start(layout, node)


def is_down(fault_run: FaultRun, node: str) -> bool:
    time.sleep(0.3)
    printed = fault_run.runner.call_slurm("sinfo", "--noheader", f"--nodes={node}", "--format=%t")
    return printed.split()[0] in DOWN


def find_slurmd(layout: Layout, node: str) -> set[int]:
    pids = leftovers.find_processes(layout, node)
    return {pid for pid in pids if leftovers.read_program(pid) == "slurmd"}


def get_layout(fault_run: FaultRun) -> Layout:
    assert fault_run.runner.place.sandbox is not None
    return fault_run.runner.place.sandbox


# ghosts -------------------------------------------------------------------------------------------


def make_ghosts(fault_run: FaultRun) -> None:
    """Let Slurm lose the nodes and start the run elsewhere, while the first ranks keep training.

    Slurm would notice a silent slurmd only after SlurmdTimeout. The nodes are set down at once, so
    that the ghosts still have much to do.
    """
    fault_run.wait_for_training()
    layout, nodes = get_layout(fault_run), list_nodes(fault_run)
    for node in nodes:
        run_processes.kill(find_slurmd(layout, node))
    names = ",".join(nodes)
    fault_run.runner.call_slurm(
        "scontrol", "update", f"nodename={names}", "state=down", "reason=drill"
    )
    try:
        fault_run.wait(
            lambda: has_next_attempt(fault_run),
            "the next attempt begins",
            may_end=True,
            within_s=NOTICED_WITHIN_S,
        )
        watch_ghosts(fault_run, fault_run.run.attempt(2).facts["started"])
    finally:
        for pids in run_processes.find_ranks(fault_run.run, 1).values():
            run_processes.kill(pids)
        for node in nodes:
            daemons.start(layout, node)


def has_next_attempt(fault_run: FaultRun) -> bool:
    if fault_run.first_attempt.facts.get("outcome") == "completed":
        raise TooLate
    time.sleep(0.2)
    fault_run.runner.skip_requeue_delay(fault_run.run)
    return bool(fault_run.run.attempt(2).facts)


def watch_ghosts(fault_run: FaultRun, since: float) -> None:
    """Record a violation unless the ghosts end by themselves and write no more checkpoints."""
    run, deadline = fault_run.run, since + GHOSTS_END_WITHIN_S
    seen = bool(run_processes.find_ranks(run, 1))
    written = ""
    while run_processes.find_ranks(run, 1) and time.time() < deadline:
        written = written or find_ghost_checkpoint(fault_run, since)
        time.sleep(0.05)
    written = written or find_ghost_checkpoint(fault_run, since)
    if written:
        fault_run.violation = written
    elif not seen:
        fault_run.violation = (
            "no stale rank was left: the ranks had ended when the next attempt began"
        )
    elif run_processes.find_ranks(run, 1):
        limit = f"{GHOSTS_END_WITHIN_S:.0f} s"
        fault_run.violation = (
            f"the stale ranks are still alive {limit} after the next attempt began"
        )


def find_ghost_checkpoint(fault_run: FaultRun, since: float) -> str:
    """Describe a checkpoint of the first attempt that is younger than the second, if any is."""
    for step in checkpoints.list_steps(fault_run.run):
        try:
            found = checkpoints.read_checkpoint(fault_run.run, step)
            changed = newest_change(found.path)
        except (Damaged, Unreadable, OSError):  # it is being removed while we look
            continue
        late_s = changed - since
        if found.manifest["attempt"] == 1 and late_s > CLOCK_ERROR_S:
            return (
                f"{found.name} was written by the attempt before, "
                f"{late_s:.1f} s after the next one began"
            )
    return ""


def newest_change(folder: Path) -> float:
    return max(path.stat().st_mtime for path in (folder, *folder.iterdir()))


# afterwards ---------------------------------------------------------------------------------------


def restore_nodes(fault_run: FaultRun) -> None:
    """Start every node again that is gone, and wait until all can take jobs."""
    layout, options = get_layout(fault_run), fault_run.runner.place.options
    for node in node_names(options):
        if not find_slurmd(layout, node):
            daemons.start(layout, node)
    deadline = time.monotonic() + NOTICED_WITHIN_S
    while missing := list_unusable_nodes(fault_run):
        if time.monotonic() > deadline:
            raise SchedulerError(
                f"{', '.join(missing)} did not come back", f"the logs are in {layout.logs}"
            )
        time.sleep(0.2)


def list_unusable_nodes(fault_run: FaultRun) -> list[str]:
    printed = fault_run.runner.call_slurm("sinfo", "--noheader", "-N", "--format=%N %t")
    rows = [line.split() for line in printed.splitlines()]
    return sorted({node for node, state in rows if state not in USABLE})
