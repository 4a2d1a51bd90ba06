"""The processes of a run on this machine, found by what /proc says of them, and killed without
mercy.

Used where ranks are processes of this machine: local runs and sandboxes. Never touches a process
that does not name the run's own directory.
"""

import contextlib
import os
import signal
from collections import defaultdict

from rampup.core import processes
from rampup.rundir.files import RunDir
from rampup.sandbox.leftovers import all_pids, command_of, environment_of, program_of

GUARDIAN = "guardian.py"
"""The program that a local launcher puts around each rank; the rank is its child."""


def ranks_of(run: RunDir, attempt: int) -> dict[int, set[int]]:
    """The processes of every rank of an attempt, from its first line in rank.py on, with the
    workers that it has."""
    found: dict[int, set[int]] = defaultdict(set)
    for pid in all_pids():
        place = rank_of(pid, run)
        if place is not None and place[0] == attempt:
            found[place[1]].add(pid)
    return dict(found)


def rank_of(pid: int, run: RunDir) -> tuple[int, int] | None:
    """The attempt and the rank that a process works for, if it does for this run."""
    environment = environment_of(pid)
    if environment.get("RAMPUP_RUN_DIR") == str(run.path) and "RANK" in environment:
        return int(environment.get("RAMPUP_ATTEMPT", 0)), int(environment["RANK"])
    words = command_of(pid)
    is_guardian = any(os.path.basename(word) == GUARDIAN for word in words)
    if str(run.rank_program) not in words or is_guardian or program_of(pid) == "srun":
        return None
    options = dict(
        word[2:].split("=", 1) for word in words if word.startswith("--") and "=" in word
    )
    rank = options.get("rank") or environment.get("SLURM_PROCID")
    return (int(options["attempt"]), int(rank)) if rank and "attempt" in options else None


def launchers_of(run: RunDir) -> set[int]:
    """The supervisor of a local run; under Slurm the srun of its step."""
    attempt = run.last_attempt()
    for named in (attempt.facts if attempt else {}, run.recorded("submitted") or {}):
        if processes.is_alive(named):
            return {named["pid"]}
    return {
        pid
        for pid in all_pids()
        if program_of(pid) == "srun" and str(run.rank_program) in command_of(pid)
    }


def kill(pids: set[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):  # it was quicker
            os.kill(pid, signal.SIGKILL)
