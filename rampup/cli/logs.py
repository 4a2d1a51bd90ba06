"""`rampup logs`: what a rank printed, now or as it comes."""

import sys
import time

import click

from rampup.cli import output
from rampup.cli.follow import Tail, poll_interval_s
from rampup.cli.options import json_option, run_argument
from rampup.cli.selection import title
from rampup.errors import RunNotFound, UsageError
from rampup.rundir import find as runs
from rampup.rundir.files import AttemptDir, RunDir
from rampup.runs.state import state_of

POLL_S = 0.2


@click.command()
@run_argument
@click.option(
    "-f",
    "--follow",
    is_flag=True,
    help="Keep printing until the run ends; Ctrl-C stops following, not the run.",
)
@click.option(
    "-n",
    "--tail",
    "last",
    type=click.IntRange(0),
    metavar="N",
    help="Only the last N lines.",
)
@click.option("--rank", type=int, default=0, show_default=True, help="The rank to show.")
@json_option
def command(run: str | None, follow: bool, last: int | None, rank: int, as_json: bool) -> int:
    """Print the output of a rank. RUN is an id or a prefix of one (default: the latest run of this
    directory)."""
    if as_json and follow:
        raise UsageError("--json and --follow can't be combined", "leave one of them out")
    found = runs.find_to_read(run)
    if as_json:
        lines = last_lines(read_log(found, rank), last).decode(errors="replace").splitlines()
        output.emit_json({"id": found.id, "rank": rank, "lines": lines})
        return 0
    output.say(f"{title(found)}, rank {rank}")
    if follow:
        follow_log(found, rank, last)
    else:
        sys.stdout.buffer.write(last_lines(read_log(found, rank), last))
    sys.stdout.flush()
    return 0


def read_log(run: RunDir, rank: int) -> bytes:
    """Return the last attempt's log; when the ranks printed nothing, what the launcher printed."""
    attempt = run.last_attempt()
    if attempt is None:
        raise RunNotFound(
            f"run {run.id} has not started: it has no log yet", f"rampup show {run.id}"
        )
    check_rank(run, attempt, rank)
    log = attempt.rank_log(rank)
    printed = log.read_bytes() if log.exists() else b""
    launcher = [path for path in (attempt.job_log, *run.slurm_logs()) if path.exists()]
    return printed or b"".join(path.read_bytes() for path in launcher)


def check_rank(run: RunDir, attempt: AttemptDir, rank: int) -> None:
    size = attempt.facts.get("world_size")
    if rank < 0 or (size is not None and rank >= size):
        raise RunNotFound(
            f"run {run.id} has no rank {rank}", f"its ranks are 0 to {(size or 1) - 1}"
        )


def last_lines(text: bytes, count: int | None) -> bytes:
    """Return the last lines; all of them for None."""
    if count is None:
        return text
    lines = text.splitlines(keepends=True)
    return b"".join(lines[len(lines) - count :] if count < len(lines) else lines)


def follow_log(run: RunDir, rank: int, last: int | None = None) -> None:
    tail, followed, begun = None, 0, time.monotonic()
    while True:
        # asked before reading: what is written until the end is not missed
        ended = state_of(run, poll_interval_s(time.monotonic() - begun)).ended
        attempt = run.last_attempt()
        # the first one, or the next after a requeue
        if attempt is not None and attempt.number != followed:
            check_rank(run, attempt, rank)
            tail, followed = Tail(attempt.rank_log(rank)), attempt.number
        if tail is not None:
            printed = tail.read()
            if printed:  # what was there before is cut once
                sys.stdout.buffer.write(last_lines(printed, last))
                last = None
            sys.stdout.flush()
        if ended:
            output.say(f"{run.id} {state_of(run).name}")
            return
        time.sleep(POLL_S)
