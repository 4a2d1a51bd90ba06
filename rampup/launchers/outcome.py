"""How an attempt ended, in a word, a code and a cause that a person understands. Used by launchers."""

import os
import resource
import signal
import time
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from rampup.rundir import AttemptDir

STORAGE_CODE = 74
"""A rank ends with it when it can't write into the run directory."""
CODES = {"completed": 0, "failed": 100, "cancelled": 103, "timeout": 104}
"""Exit codes of `wait` and of a foreground `run`."""


class Outcome(Struct, frozen=True):
    name: Literal["completed", "failed", "cancelled", "timeout"]
    failed_rank: int | None = None
    exit_code: int | None = None
    """The failing rank's own exit code; 128 + n when signal n ended it."""
    cause: str = ""

    @property
    def code(self) -> int:
        return CODES[self.name]

    def facts(self, started: float) -> dict[str, Any]:
        """What is added to attempt.json at the end."""
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        ended = time.time()
        return {
            "outcome": self.name,
            "exit_code": self.exit_code,
            "failed_rank": self.failed_rank,
            "cause": self.cause,
            "ended": ended,
            "wall_s": round(ended - started, 3),
            "cpu_s": round(used.ru_utime + used.ru_stime, 2),
            "max_rss_mb": round(used.ru_maxrss / 1024, 1),
        }


def failure_of(outcome: Outcome, attempt: AttemptDir) -> Outcome:
    """The same outcome with its cause: the rank that failed first, not one that fell because of it."""
    if outcome.name != "failed" or outcome.cause:
        return outcome
    rank, code = outcome.failed_rank, outcome.exit_code
    assert rank is not None and code is not None
    if code > 128 and code - 128 in set(signal.Signals):
        return replace(
            outcome, cause=f"rank {rank} was killed by {signal.Signals(code - 128).name}{_advice(code - 128)}"
        )
    errors = attempt.errors()
    if errors:
        first = errors[0]
        said = f"rank {first['rank']}: {first['type']}: {first['message']}"
        return replace(outcome, failed_rank=first["rank"], cause=said)
    if code == STORAGE_CODE or _disk_is_full(attempt):
        return replace(outcome, cause=f"rank {rank} could not write into {attempt.path}: {_storage_state(attempt)}")
    return replace(outcome, cause=f"rank {rank} exited with code {code}{_meaning(code)}")


def _advice(number: int) -> str:
    if number == signal.SIGKILL:
        return " (out of memory? see `dmesg`)"
    return " (its address space or a library is broken)" if number in (signal.SIGSEGV, signal.SIGBUS) else ""


def _meaning(code: int) -> str:
    return {126: " (the program can't be executed)", 127: " (the program was not found)"}.get(code, "")


def _disk_is_full(attempt: AttemptDir) -> bool:
    try:
        disk = os.statvfs(attempt.path)
    except OSError:
        return True
    return disk.f_bavail == 0 or (disk.f_files > 0 and disk.f_favail == 0)


def _storage_state(attempt: AttemptDir) -> str:
    if not attempt.path.exists():
        return "it vanished"
    return "the disk is full" if _disk_is_full(attempt) else "see its log"
