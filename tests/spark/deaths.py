"""The four ways in which the ranks of a run on Spark lose something, and what must come of each: no
process is left, and the cause is named."""

import json
import os
import signal
import time
from pathlib import Path
from typing import Any, NamedTuple

import rampup
from rampup.core import processes
from rampup.rundir.files import RunDir

from .conftest import (
    GONE_WITHIN_S,
    START_WITHIN_S,
    processes_of,
    wait_for,
)

CAUSES = {
    "cancel": "it was cancelled",
    "rank": "rank 1 was killed by SIGKILL",
    "worker": "rank 1: its Python worker died",
    "executor": "rank 1: its executor died",
}
"""The kinds, with words that the cause must have."""


def endure() -> None:
    """A rank that ignores SIGTERM, with a child in a process session of its own."""
    import os
    import signal
    import subprocess
    import time

    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    subprocess.Popen(["sleep", "300"], start_new_session=True)
    open(f"{os.environ['RAMPUP_RUN_DIR']}/attempts/1/began-{os.environ['RANK']}", "w").close()
    time.sleep(300)


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def find_victim(run: RunDir, kind: str) -> int:
    """Return the process to kill: rank 1 itself, or what stands above it."""
    worker = int(json.loads((run.attempt(1).path / "task-0-1").read_text())["pid"])
    if kind == "worker":
        return worker
    if kind == "executor":
        return parent_of(parent_of(worker))  # above the daemon that forks workers
    ranks = [pid for pid in processes_of(run.path) if rank_of(pid) == "1"]
    return min(ranks)


def rank_of(pid: int) -> str:
    try:
        text = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
    except OSError:
        return ""
    found = [word for word in text.split("\0") if word.startswith("RANK=")]
    return found[0].removeprefix("RANK=") if found else ""


class Death(NamedTuple):
    """What came of one death, in seconds after it."""

    ended_s: float
    gone_s: float
    cause: str


def die(kind: str) -> Death:
    """Let one run meet one death. Return when the run had ended, and when nothing of it was
    left."""
    job = rampup.launch(endure, np=2, on="spark", wait=False, name=kind)
    run = RunDir(job.dir)
    began = [run.attempt(1).path / f"began-{rank}" for rank in (0, 1)]
    wait_for(lambda: all(path.exists() for path in began), "both ranks run", START_WITHIN_S)
    assert len(processes_of(run.path)) >= 4, "ranks, and a child of each"
    executor = find_victim(run, "executor")
    since = time.monotonic()
    if kind == "cancel":
        job.cancel()
    else:
        os.kill(find_victim(run, kind), signal.SIGKILL)
    wait_for(lambda: "outcome" in run.attempt(1).facts, "the run has ended", GONE_WITHIN_S)
    ended_s = time.monotonic() - since
    wait_for(lambda: not processes_of(run.path), "nothing is left", GONE_WITHIN_S)
    gone_s = time.monotonic() - since
    assert gone_s < GONE_WITHIN_S
    assert job.done()
    facts: dict[str, Any] = run.attempt(1).facts
    assert CAUSES[kind] in facts["cause"], facts
    assert facts["outcome"] == ("cancelled" if kind == "cancel" else "failed")
    assert len(run.attempt_numbers()) == 1
    if kind != "executor":
        assert processes.start_ticks(executor) is not None, "the executor itself lives on"
    return Death(ended_s, gone_s, facts["cause"])
