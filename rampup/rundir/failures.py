"""Why an attempt failed, in one line for people: the rank that failed first, not one that fell
because of it.

Reads the attempt's files only. The local launcher asks when an attempt ends; for a job of Slurm,
who reads it asks. `rampup why` starts from the same rank and looks further:
diagnose/why/explain.py.
"""

import os
import re
import signal
from typing import NamedTuple

from rampup.rundir.files import AttemptDir, RunDir
from rampup.rundir.records import Record

SRUN = re.compile(r"srun: error: (?P<node>[^:]+): tasks? (?P<ranks>[\d,-]+): (?P<words>.*)")
"""srun names the task that ended first; the ones that it killed follow."""
MPIRUN = re.compile(
    r"Process name: \[\[\d+,\d+\],(?P<rank>\d+)\]\s+Exit code:\s+(?P<code>\d+)"
    r"|process rank (?P<killed>\d+) with PID \d+ on node \S+ exited\s+on signal (?P<signal>\d+)"
)
"""Open MPI names the first one alone."""
EXIT_CODE = re.compile(r"exited with exit code (\d+)")
SIGNALS = {(signal.strsignal(number) or "").lower(): int(number) for number in signal.Signals}
"""What srun says of a task that a signal ended."""
LOST_PEER = re.compile(
    r"lost contact with another rank|can't join the others|connection (closed|reset) by peer|broken pipe"
    r"|\bgloo\b|\bnccl\b|DistNetworkError|DistStoreError|ProcessGroup\w+|recvValue failed"
    r"|Horovod has been shut down|HorovodInternalError",
    re.IGNORECASE,
)
"""Of a rank that fell because another one was gone."""
ROLL_CALL = "did not come"
"""Of a rank that waited for another one; the other may have left a better word."""


class Exit(NamedTuple):
    """How a rank ended, as its launcher saw it."""

    rank: int
    code: int
    """128 + n when signal n ended it."""
    node: str = ""
    words: str = ""
    """Those of srun."""


class Suspect(NamedTuple):
    """The rank that failed first, with all that is known of its end."""

    rank: int | None = None
    code: int | None = None
    node: str = ""
    words: str = ""
    error: Record = {}
    """What it left in error-<rank>.json."""


def explain(attempt: AttemptDir, rank: int | None, code: int | None) -> tuple[int | None, str]:
    """The rank that failed first, and the cause. `rank` and `code` are what the launcher saw, if it
    did."""
    first = first_to_fail(attempt, rank, code)
    who = f"rank {first.rank}" + (f" on node {first.node}" if first.node else "")
    if first.error:
        kind = "" if first.error.get("type") == "NotReady" else f"{first.error.get('type')}: "
        return first.rank, f"rank {first.rank}: {kind}{first.error.get('message')}"
    name = signal_name(first.code or 0) if first.rank is not None else ""
    if name:
        return first.rank, f"{who} was killed by {name}{_advice(first.code or 0)}"
    if _disk_is_full(attempt):
        what = "the disk is full" if attempt.path.exists() else "it vanished"
        return (
            first.rank,
            f"{'a rank' if rank is None else who} could not write into {attempt.path}: {what}",
        )
    if first.words:
        return first.rank, f"{who}: {first.words}"
    if first.rank is None or first.code is None:
        return None, f"the job ended with code {code}{_last_error(attempt) or _meaning(code)}"
    return first.rank, f"{who} exited with code {first.code}{_meaning(first.code)}"


def first_to_fail(attempt: AttemptDir, rank: int | None, code: int | None) -> Suspect:
    """A rank that lost contact with another one is suspected only when nobody else is."""
    errors = attempt.errors()
    fell = [error for error in errors if fell_because_of_another(error)]
    exits = (
        [Exit(rank, code)] if rank is not None and code is not None else exits_by_launcher(attempt)
    )
    fallen = {error.get("rank") for error in fell}
    exits = [end for end in exits if end.rank not in fallen] or exits
    if exits and signal_name(exits[0].code) and exits[0].rank not in fallen:
        return Suspect(*exits[0])
    culprits = [error for error in errors if error not in fell]
    # the earliest first, as they came
    culprits.sort(key=lambda error: ROLL_CALL in str(error.get("message")))
    if culprits or (fell and (not exits or exits[0].rank in fallen)):
        return _with_exit((culprits or fell)[0], exits)
    return Suspect(*exits[0]) if exits else Suspect(rank, code)


def fell_because_of_another(error: Record) -> bool:
    return LOST_PEER.search(f"{error.get('type')}: {error.get('message')}") is not None


def _with_exit(error: Record, exits: list[Exit]) -> Suspect:
    mine = [end for end in exits if end.rank == error.get("rank")]
    seen = mine[0] if mine else None
    return Suspect(
        error.get("rank"), seen.code if seen else None, seen.node if seen else "", "", error
    )


def exits_by_launcher(attempt: AttemptDir) -> list[Exit]:
    """The ranks that ended badly, as mpirun or srun told. The tasks of srun are no ranks where
    mpirun started those."""
    text = said_in_attempt(attempt)
    first = MPIRUN.search(text)
    if first is None:
        return exits_by_srun(text)
    if first["rank"]:
        return [Exit(int(first["rank"]), int(first["code"]))]
    return [Exit(int(first["killed"]), 128 + int(first["signal"]))]


def exits_by_srun(text: str) -> list[Exit]:
    """In the order in which srun heard of them, without those that it ended itself."""
    found = []
    for line in text.splitlines():
        match = SRUN.search(line)
        words = match["words"].strip().lower().removesuffix(" (core dumped)") if match else ""
        code = _code_of(words)
        if match and code != 128 + signal.SIGTERM:
            found += [Exit(rank, code, match["node"], words) for rank in ranks_in(match["ranks"])]
    return found


def _code_of(words: str) -> int:
    told = EXIT_CODE.search(words)
    if told:
        return int(told[1])
    return 128 + (signal.SIGKILL if words.startswith("out of memory") else SIGNALS.get(words, 0))


def ranks_in(text: str) -> list[int]:
    """`0-2,5`"""
    found: list[int] = []
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found.extend(range(int(first), int(last or first) + 1))
    return found


def said_in_attempt(attempt: AttemptDir) -> str:
    """What Slurm and the job script said, or the launcher here.

    A requeued job goes on in the log of the attempt before; the job script says where each begins.
    """
    job = attempt.facts.get("job", "")
    log = RunDir(attempt.path.parent.parent).slurm_log(job) if job else attempt.job_log
    text = log.read_text(errors="replace") if log.is_file() else ""
    mine = text.rpartition(f"rampup: attempt {attempt.number} ")[2]
    return mine.partition(f"rampup: attempt {attempt.number + 1} ")[0]


def signal_name(code: int) -> str:
    """SIGKILL for 137; empty for a code that tells of no signal."""
    return (
        signal.Signals(code - 128).name if code > 128 and code - 128 in set(signal.Signals) else ""
    )


def _last_error(attempt: AttemptDir) -> str:
    errors = [line for line in said_in_attempt(attempt).splitlines() if "error:" in line]
    return f": {errors[-1]}" if errors else ""


def _advice(code: int) -> str:
    if code == 128 + signal.SIGKILL:
        return " (out of memory, or by hand)"
    broken = code in (128 + signal.SIGSEGV, 128 + signal.SIGBUS)
    return " (its address space or a library is broken)" if broken else ""


def _meaning(code: int | None) -> str:
    return {126: " (the program can't be executed)", 127: " (the program was not found)"}.get(
        code or 0, ""
    )


def _disk_is_full(attempt: AttemptDir) -> bool:
    try:
        disk = os.statvfs(attempt.path)
    except OSError:
        return True
    return disk.f_bavail == 0 or (disk.f_files > 0 and disk.f_favail == 0)
