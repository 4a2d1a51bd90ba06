"""Faults for which one must own the cluster: preemption by another job, lost nodes, and ghosts.

A lost node is all that a machine takes with it: slurmd, job steps and tasks. A ghost is what lives
on at a node that Slurm alone has lost. The nodes are brought back before the next run.
"""

import time
from pathlib import Path

from rampup.drill import victims
from rampup.drill.scene import Scene, TooLate
from rampup.errors import SchedulerError
from rampup.rundir import checkpoints
from rampup.rundir.checkpoints import Damaged
from rampup.sandbox import daemons, leftovers
from rampup.sandbox.layout import Layout, node_names

PREEMPTOR = "rampup-drill-preemptor"
DOWN = ("down", "down*", "fail", "error")
NOTICED_WITHIN_S = 120.0
GHOSTS_END_WITHIN_S = 60.0
"""From the start of the next attempt on."""
CLOCKS_S = 1.0
"""How exactly the time of a file's change is known."""


def preempt(scene: Scene) -> None:
    """A job of the urgent partition takes the nodes of the run, for a moment."""
    scene.wait_for_training()
    nodes = nodes_of(scene)
    words = [
        "--partition=urgent",
        "--exclusive",
        f"--nodes={len(nodes)}",
        f"--nodelist={','.join(nodes)}",
        "--time=1",
    ]
    scene.stage.slurm(
        "sbatch", *words, f"--job-name={PREEMPTOR}", "--output=/dev/null", "--wrap=sleep 0.5"
    )
    scene.wait(lambda: "outcome" in scene.attempt.facts, "it is preempted")


def lose_first_node(scene: Scene) -> None:
    scene.wait_for_training()
    _lose(scene, nodes_of(scene)[0])


def lose_other_node(scene: Scene) -> None:
    scene.wait_for_training()
    _lose(scene, nodes_of(scene)[-1])


def nodes_of(scene: Scene) -> list[str]:
    """In the order of the ranks."""
    return scene.stage.slurm("scontrol", "show", "hostnames", scene.attempt.facts["nodes"]).split()


def _lose(scene: Scene, node: str) -> None:
    layout = layout_of(scene)
    while found := leftovers.processes_of(layout, node):
        victims.kill(found)
    scene.wait(
        lambda: is_down(scene, node), f"Slurm notices that {node} is gone", True, NOTICED_WITHIN_S
    )
    daemons.start(layout, node)


def is_down(scene: Scene, node: str) -> bool:
    time.sleep(0.3)
    return (
        scene.stage.slurm("sinfo", "--noheader", f"--nodes={node}", "--format=%t").split()[0]
        in DOWN
    )


def slurmd_of(layout: Layout, node: str) -> set[int]:
    return {
        pid for pid in leftovers.processes_of(layout, node) if leftovers.program_of(pid) == "slurmd"
    }


def layout_of(scene: Scene) -> Layout:
    assert scene.stage.place.sandbox is not None
    return scene.stage.place.sandbox


# ghosts -------------------------------------------------------------------------------------------


def make_ghosts(scene: Scene) -> None:
    """Slurm loses the nodes and starts the run elsewhere, while the ranks of the first attempt go
    on training.

    Slurm notices a silent slurmd after SlurmdTimeout; it is told at once, so that the ghosts have
    much left to do.
    """
    scene.wait_for_training()
    layout, nodes = layout_of(scene), nodes_of(scene)
    for node in nodes:
        victims.kill(slurmd_of(layout, node))
    scene.stage.slurm(
        "scontrol", "update", f"nodename={','.join(nodes)}", "state=down", "reason=drill"
    )
    try:
        scene.wait(lambda: next_attempt(scene), "the next attempt begins", True, NOTICED_WITHIN_S)
        watch_ghosts(scene, scene.run.attempt(2).facts["started"])
    finally:
        for pids in victims.ranks_of(scene.run, 1).values():
            victims.kill(pids)
        for node in nodes:
            daemons.start(layout, node)


def next_attempt(scene: Scene) -> bool:
    if scene.attempt.facts.get("outcome") == "completed":
        raise TooLate
    time.sleep(0.2)
    scene.stage.start_soon(scene.run)
    return bool(scene.run.attempt(2).facts)


def watch_ghosts(scene: Scene, since: float) -> None:
    """They must end by themselves, and nothing of theirs may appear among the checkpoints any
    more."""
    deadline = since + GHOSTS_END_WITHIN_S
    seen = bool(victims.ranks_of(scene.run, 1))
    while victims.ranks_of(scene.run, 1) and time.time() < deadline:
        scene.wrong = scene.wrong or written_by_ghosts(scene, since)
        time.sleep(0.05)
    scene.wrong = scene.wrong or written_by_ghosts(scene, since)
    if not seen:
        scene.wrong = (
            scene.wrong or "there was no ghost: the ranks had ended when the next attempt began"
        )
    if victims.ranks_of(scene.run, 1):
        scene.wrong = (
            scene.wrong
            or f"the ghosts still live {GHOSTS_END_WITHIN_S:.0f} s after the next attempt began"
        )


def written_by_ghosts(scene: Scene, since: float) -> str:
    """Checkpoints of the first attempt that are younger than the second."""
    for step in checkpoints.list_steps(scene.run):
        try:
            found = checkpoints.read_checkpoint(scene.run, step)
            changed = newest_change(found.path)
        except (Damaged, OSError):  # it is being removed while we look
            continue
        if found.manifest["attempt"] == 1 and changed > since + CLOCKS_S:
            return f"{found.name} was written by the attempt before, {changed - since:.1f} s after the next one began"
    return ""


def newest_change(folder: Path) -> float:
    return max(path.stat().st_mtime for path in (folder, *folder.iterdir()))


# afterwards ---------------------------------------------------------------------------------------


def heal(scene: Scene) -> None:
    """Every node is there and idle again, for the next run."""
    layout, options = layout_of(scene), scene.stage.place.options
    for node in node_names(options):
        if not slurmd_of(layout, node):
            daemons.start(layout, node)
    deadline = time.monotonic() + NOTICED_WITHIN_S
    while waiting := not_idle(scene):
        if time.monotonic() > deadline:
            raise SchedulerError(
                f"{', '.join(waiting)} did not come back", f"the logs are in {layout.logs}"
            )
        time.sleep(0.2)


def not_idle(scene: Scene) -> list[str]:
    rows = [
        line.split()
        for line in scene.stage.slurm("sinfo", "--noheader", "-N", "--format=%N %t").splitlines()
    ]
    return sorted({node for node, state in rows if state not in ("idle", "mix", "alloc")})
