"""Why an attempt failed, in one line for people: the rank that failed first, not one that fell because of it.

Reads the attempt's files only. The local launcher asks when an attempt ends; for a job of Slurm, who reads it asks.
"""

import os
import re
import signal

from rampup.rundir import AttemptDir, RunDir

SRUN = re.compile(r"srun: error: (?P<node>[^:]+): tasks? (?P<rank>\d+)[\d,-]*: (?P<words>.*)")
"""srun names the task that ended first; the ones that it killed follow."""


def explain(attempt: AttemptDir, rank: int | None, code: int | None) -> tuple[int | None, str]:
    """The rank that failed first, and the cause. `rank` and `code` are what the launcher saw, if it did."""
    if rank is not None and code is not None and _signal_of(code):
        return rank, f"rank {rank} was killed by {_signal_of(code)}{_advice(code - 128)}"
    errors = attempt.errors()
    if errors:
        first = errors[0]
        kind = "" if first["type"] == "NotReady" else f"{first['type']}: "
        return first["rank"], f"rank {first['rank']}: {kind}{first['message']}"
    if _disk_is_full(attempt):
        what = "the disk is full" if attempt.path.exists() else "it vanished"
        return rank, f"{_who(rank)} could not write into {attempt.path}: {what}"
    if rank is None:
        return _what_srun_said(attempt, code)
    return rank, f"rank {rank} exited with code {code}{_meaning(code)}"


def _what_srun_said(attempt: AttemptDir, code: int | None) -> tuple[int | None, str]:
    text = _said_in_this_attempt(attempt)
    found = SRUN.search(text)
    if found is None:
        errors = [line for line in text.splitlines() if "error:" in line]
        said = f": {errors[-1]}" if errors else _meaning(code)
        return None, f"the job ended with code {code}{said}"
    rank, words = int(found["rank"]), found["words"].strip().lower()
    return rank, f"rank {rank} on node {found['node']}: {words}{_advice(signal.SIGKILL) if words == 'killed' else ''}"


def _said_in_this_attempt(attempt: AttemptDir) -> str:
    """A requeued job goes on in the log of the attempt before; the job script says where each begins."""
    log = RunDir(attempt.path.parent.parent).slurm_log(attempt.facts.get("job", ""))
    text = log.read_text(errors="replace") if log.exists() else ""
    return text.rpartition(f"rampup: attempt {attempt.number} ")[2]


def _who(rank: int | None) -> str:
    return "a rank" if rank is None else f"rank {rank}"


def _signal_of(code: int) -> str:
    return signal.Signals(code - 128).name if code > 128 and code - 128 in set(signal.Signals) else ""


def _advice(number: int) -> str:
    if number == signal.SIGKILL:
        return " (out of memory, or by hand)"
    return " (its address space or a library is broken)" if number in (signal.SIGSEGV, signal.SIGBUS) else ""


def _meaning(code: int | None) -> str:
    return {126: " (the program can't be executed)", 127: " (the program was not found)"}.get(code or 0, "")


def _disk_is_full(attempt: AttemptDir) -> bool:
    try:
        disk = os.statvfs(attempt.path)
    except OSError:
        return True
    return disk.f_bavail == 0 or (disk.f_files > 0 and disk.f_favail == 0)
