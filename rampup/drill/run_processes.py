"""The processes of a run on this machine: find its ranks and launchers in /proc, and kill them.

Used by the runner and by the faults where ranks are processes of this machine: in local runs and
in sandboxes. Never touches a process that does not name the run's own directory.
"""

import contextlib
import os
import signal
from collections import defaultdict

from rampup.core import processes
from rampup.launchers.srun import PROGRAM as STEP_PROGRAM
from rampup.rundir.files import RunDir
from rampup.sandbox.leftovers import all_pids, read_command, read_environment, read_program

GUARDIAN = "guardian.py"
"""The program that a local launcher puts around each rank; the rank is its child."""


def find_ranks(run: RunDir, attempt: int) -> dict[int, set[int]]:
    """Return the processes of every rank of an attempt, with the workers that a rank has started.

    A rank is found from its first line in rank.py on.
    """
    found: dict[int, set[int]] = defaultdict(set)
    for pid in all_pids():
        identity = identify(pid, run)
        if identity is not None and identity[0] == attempt:
            found[identity[1]].add(pid)
    return dict(found)


def identify(pid: int, run: RunDir) -> tuple[int, int] | None:
    """Return the attempt and the rank of a process, or None when it is not a rank of this run."""
    environment = read_environment(pid)
    is_of_run = environment.get("RAMPUP_RUN_DIR") == str(run.path)
    if is_of_run and "RANK" in environment:
        return int(environment.get("RAMPUP_ATTEMPT", 0)), int(environment["RANK"])
    words = read_command(pid)
    is_guardian = any(os.path.basename(word) == GUARDIAN for word in words)
    if is_of_run and not is_guardian and run.config.get("as_at_home"):  # it has no RANK
        return int(environment.get("RAMPUP_ATTEMPT", 0)), 0
    if str(run.rank_program) not in words or is_guardian:
        return None
    if read_program(pid) == STEP_PROGRAM:  # it names rank.py too
        return None
    long_options = [word[2:] for word in words if word.startswith("--") and "=" in word]
    options = dict(option.split("=", 1) for option in long_options)
    rank = options.get("rank") or environment.get("SLURM_PROCID")
    return (int(options["attempt"]), int(rank)) if rank and "attempt" in options else None


def find_launchers(run: RunDir) -> set[int]:
    """Return the supervisor of a local run, or under Slurm the srun processes of its step."""
    attempt = run.last_attempt()
    for named in (attempt.facts if attempt else {}, run.recorded("submitted") or {}):
        if processes.is_alive(named):
            return {named["pid"]}
    sruns = [pid for pid in all_pids() if read_program(pid) == STEP_PROGRAM]
    return {pid for pid in sruns if str(run.rank_program) in read_command(pid)}


def kill(pids: set[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):  # it ended first
            os.kill(pid, signal.SIGKILL)
