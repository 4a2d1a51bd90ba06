"""Samples of CPU and memory where nobody outside the ranks takes them: the first rank of each node
does it.

On one machine the launcher samples (it sets RAMPUP_SUPERVISED); under Slurm there is no process of
ours around the ranks. `open_job` and `rampup.init()` call this; a plain command under Slurm is not
sampled.
"""

import atexit
import os
from pathlib import Path

from rampup.rundir.files import RunDir
from rampup.runtime.context import RankContext
from rampup.runtime.telemetry.sampler import Sampler

PROC = Path("/proc")


def sample_this_node(context: RankContext) -> None:
    """Until this process ends."""
    if context.run_dir is None or context.local_rank != 0 or os.environ.get("RAMPUP_SUPERVISED"):
        return
    run_dir, node = context.run_dir, context.node
    file = RunDir(run_dir).attempt(context.attempt).system_file(node)
    sampler = Sampler(file, pids=lambda: ranks_here(run_dir, node)).start()
    atexit.register(sampler.stop)


def ranks_here(run_dir: Path, node: str) -> set[int]:
    """The processes of this run on this node, known by what rank.py put into their environment."""
    marks = {b"RAMPUP_RUN_DIR=" + os.fsencode(run_dir), b"RAMPUP_NODE=" + os.fsencode(node)}
    found = {os.getpid()}
    for place in PROC.glob("[0-9]*"):
        try:
            environment = (place / "environ").read_bytes()
        except OSError:  # somebody else's, or gone
            continue
        if marks <= set(environment.split(b"\0")):
            found.add(int(place.name))
    return found
