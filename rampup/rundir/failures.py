"""Why an attempt failed, in one line for people: the rank that failed first, not one that fell
because of it.

Reads the attempt's files only. The local launcher calls it when an attempt ends; for a job of
Slurm, the readers of its state call it. `rampup why` starts from the same rank and looks further:
diagnose/why/explain.py.
"""

import os
import re
import signal
from typing import NamedTuple

from rampup.errors import NOT_EXECUTABLE, NOT_FOUND
from rampup.rundir import opening
from rampup.rundir.files import AttemptDir, RunDir
from rampup.rundir.records import Record

SRUN = re.compile(r"srun: error: (?P<node>[^:]+): tasks? (?P<ranks>[\d,-]+): (?P<words>.*)")
"""srun names the task that ended first; the ones that it killed follow."""
MPIRUN = re.compile(
    r"Process name: \[\[\d+,\d+\],(?P<rank>\d{1,9})\]\s+Exit code:\s+(?P<code>\d{1,9})\b"
    r"|process rank (?P<killed>\d{1,9}) with PID \d+ on node \S+ exited\s+on signal (?P<signal>\d{1,9})\b"
)
"""Open MPI names the first one alone."""
EXIT_CODE = re.compile(r"exited with exit code (\d{1,9})\b")
SIGNALS = {(signal.strsignal(number) or "").lower(): int(number) for number in signal.Signals}
"""srun's words for a task that a signal ended."""
LOST_PEER = re.compile(
    r"lost contact with another rank|can't join the others|connection (closed|reset) by peer|broken pipe"
    r"|gloo[/:.]|gloo\b.*(fail|timed? ?out|closed|refused)|nccl(Remote|System|Internal)Error"
    r"|nccl\b.*(error|abort|timed? ?out|closed|watchdog)|DistNetworkError|DistStoreError|recvValue failed"
    r"|Horovod has been shut down|HorovodInternalError",
    re.IGNORECASE,
)
"""Errors of a rank that fell because another one was gone."""
RANKS = re.compile(r"(?<![\d-])(\d{1,9})(?:-(\d{1,9}))?(?![\d-])")
MOST_RANKS = 100_000
"""A line may name any number of them."""
LAUNCHER_BYTES = 8 * 2**20
"""How much is read of what a launcher printed: its end."""
ROLL_CALL = ("never connected", "did not come")
"""The error of a rank that waited for another one; the other may have recorded a better cause."""


class Exit(NamedTuple):
    """How a rank ended, as its launcher saw it."""

    rank: int
    code: int
    """128 + n when signal n ended it."""
    node: str = ""
    words: str = ""
    """The message of srun."""


class FirstFailure(NamedTuple):
    """The rank that failed first, with all that is known of its end."""

    rank: int | None = None
    code: int | None = None
    node: str = ""
    words: str = ""
    error: Record = {}
    """The record in error-<rank>.json."""


def explain_failure(
    attempt: AttemptDir, rank: int | None, code: int | None
) -> tuple[int | None, str]:
    """Return the rank that failed first, and the cause. `rank` and `code` are what the launcher saw,
    if it did."""
    first = find_first_failure(attempt, rank, code)
    who = f"rank {first.rank}" + (f" on node {first.node}" if first.node else "")
    if first.error:
        kind = "" if first.error.get("type") == "NotReady" else f"{first.error.get('type')}: "
        return first.rank, f"rank {first.rank}: {kind}{first.error.get('message')}"
    name = signal_name(first.code or 0) if first.rank is not None else ""
    if name:
        return first.rank, f"{who} was killed by {name}{_advice(first.code or 0)}"
    if _disk_is_full(attempt):
        what = "the disk is full" if attempt.path.exists() else "it vanished"
        writer = "a rank" if rank is None else who
        return first.rank, f"{writer} could not write into {attempt.path}: {what}"
    if first.words:
        return first.rank, f"{who}: {first.words}"
    if first.rank is None or first.code is None:
        return None, f"the job ended with code {code}{_last_error(attempt) or _meaning(code)}"
    return first.rank, f"{who} exited with code {first.code}{_meaning(first.code)}"


def find_first_failure(attempt: AttemptDir, rank: int | None, code: int | None) -> FirstFailure:
    """Return the rank that failed first. One that lost contact with another rank is suspected only
    when no other rank is."""
    errors = attempt.errors()
    fell = [error for error in errors if blames_another_rank(error)]
    exits = [Exit(rank, code)] if rank is not None and code is not None else read_exits(attempt)
    fallen = {error.get("rank") for error in fell}
    exits = [end for end in exits if end.rank not in fallen] or exits
    if exits and signal_name(exits[0].code) and exits[0].rank not in fallen:
        return FirstFailure(*exits[0])
    culprits = [error for error in errors if error not in fell]
    # the earliest first, as they came
    culprits.sort(key=lambda error: any(it in str(error.get("message")) for it in ROLL_CALL))
    if culprits or (fell and (not exits or exits[0].rank in fallen)):
        return _add_exit((culprits or fell)[0], exits)
    return FirstFailure(*exits[0]) if exits else FirstFailure(rank, code)


def blames_another_rank(error: Record) -> bool:
    return LOST_PEER.search(f"{error.get('type')}: {error.get('message')}") is not None


def _add_exit(error: Record, exits: list[Exit]) -> FirstFailure:
    mine = [end for end in exits if end.rank == error.get("rank")]
    if not mine:
        return FirstFailure(error.get("rank"), error=error)
    return FirstFailure(error.get("rank"), mine[0].code, mine[0].node, error=error)


def read_exits(attempt: AttemptDir) -> list[Exit]:
    """Return the ranks that failed, as mpirun or srun reported them. Where mpirun started the ranks,
    the tasks of srun are not ranks."""
    text = read_launcher_output(attempt)
    first = MPIRUN.search(text)
    if first is None:
        return parse_srun_exits(text)
    if first["rank"]:
        return [Exit(int(first["rank"]), int(first["code"]))]
    return [Exit(int(first["killed"]), 128 + int(first["signal"]))]


def parse_srun_exits(text: str) -> list[Exit]:
    """Return the exits in the order in which srun reported them, without those that it caused
    itself."""
    found = []
    for line in text.splitlines():
        match = SRUN.search(line)
        words = match["words"].strip().lower().removesuffix(" (core dumped)") if match else ""
        code = _parse_exit_code(words)
        if match and code != 128 + signal.SIGTERM:
            found += [
                Exit(rank, code, match["node"], words) for rank in parse_ranks(match["ranks"])
            ]
    return found


def _parse_exit_code(words: str) -> int:
    match = EXIT_CODE.search(words)
    if match:
        return int(match[1])
    return 128 + (signal.SIGKILL if words.startswith("out of memory") else SIGNALS.get(words, 0))


def parse_ranks(text: str) -> list[int]:
    """Read a list of ranks such as `0-2,5`."""
    found: list[int] = []
    for part in RANKS.finditer(text):
        first, last = int(part[1]), int(part[2] or part[1])
        found.extend(range(first, min(last + 1, first + MOST_RANKS - len(found))))
    return found


def read_launcher_output(attempt: AttemptDir) -> str:
    """Return the output of Slurm and of the job script, or of the local launcher.

    A requeued job continues in the log of the attempt before; the job script marks where each
    begins.
    """
    job = attempt.facts.get("job", "")
    log = RunDir(attempt.path.parent.parent).slurm_log(job) if job else attempt.job_log
    text = opening.read_text(log, LAUNCHER_BYTES)
    mine = text.rpartition(f"rampup: attempt {attempt.number} ")[2]
    return mine.partition(f"rampup: attempt {attempt.number + 1} ")[0]


def signal_name(code: int) -> str:
    """Return SIGKILL for 137; empty for a code that does not stand for a signal."""
    is_signal = code > 128 and code - 128 in set(signal.Signals)
    return signal.Signals(code - 128).name if is_signal else ""


def _last_error(attempt: AttemptDir) -> str:
    errors = [line for line in read_launcher_output(attempt).splitlines() if "error:" in line]
    return f": {errors[-1]}" if errors else ""


def _advice(code: int) -> str:
    if code == 128 + signal.SIGKILL:
        return " (out of memory, or by hand)"
    broken = code in (128 + signal.SIGSEGV, 128 + signal.SIGBUS)
    return " (its address space or a library is broken)" if broken else ""


def _meaning(code: int | None) -> str:
    if code == NOT_EXECUTABLE:
        return " (the program can't be executed)"
    return " (the program was not found)" if code == NOT_FOUND else ""


def _disk_is_full(attempt: AttemptDir) -> bool:
    try:
        disk = os.statvfs(attempt.path)
    except OSError:
        return True
    return disk.f_bavail == 0 or (disk.f_files > 0 and disk.f_favail == 0)
