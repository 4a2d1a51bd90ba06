"""`rampup logs`: what a rank printed, now or as it comes."""

import codecs
import os
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import click

from rampup.cli import output
from rampup.cli.follow import Tail, poll_interval_s
from rampup.cli.options import json_option, run_argument
from rampup.cli.selection import explain_unreadable, title
from rampup.core.harmless import escape
from rampup.errors import RunNotFound, UsageError
from rampup.rundir import find as runs
from rampup.rundir import opening
from rampup.rundir.files import AttemptDir, RunDir
from rampup.runs.state import state_of

POLL_S = 0.2
FIRST_BYTES, MOST_BYTES = 2**18, 2**24
"""How much of a log is read for its last lines: at first, and at most."""
SGR = re.compile("(\x1b\\[[0-9;:]{0,40}m)")
UNFINISHED = re.compile("\x1b(\\[[0-9;:]{0,40})?$")


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
@click.option(
    "--rank", type=int, metavar="R", default=0, show_default=True, help="The rank to show."
)
@json_option
def command(run: str | None, follow: bool, last: int | None, rank: int, as_json: bool) -> int:
    """Print the output of a rank. RUN is an id or its first letters, a job id, a name or a path
    (default: the latest run of this directory)."""
    if as_json and follow:
        raise UsageError("--json and --follow can't be combined", "leave one of them out")
    found = runs.find_to_read(run)
    if explain_unreadable(found, as_json):
        return 0
    if as_json:
        text = b"".join(read_end(path, last) for path in find_logs(found, rank))
        lines = last_lines(text, last).decode(errors="replace").splitlines()
        output.emit_json({"id": found.id, "rank": rank, "lines": lines})
        return 0
    output.say(f"{title(found)}, rank {rank}")
    printer = Printer()
    if follow:
        follow_log(found, rank, printer, last)
    else:
        print_logs(find_logs(found, rank), printer, last)
    printer.close()
    return 0


class Printer:
    """Passes on what a rank printed: into a pipe as it is; on a terminal without what the terminal
    would obey, except colours."""

    def __init__(self) -> None:
        self.is_terminal = sys.stdout.isatty()
        self.decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self.held = ""
        """The beginning of what may be a colour."""
        self.is_coloured = False

    def print(self, data: bytes) -> None:
        if not self.is_terminal:
            sys.stdout.buffer.write(data)
            return
        text = self.held + self.decode(data)
        cut = UNFINISHED.search(text)
        self.held = cut[0] if cut else ""
        self._write(text.removesuffix(self.held))

    def _write(self, text: str) -> None:
        parts = SGR.split(text)  # texts, and colours between them
        self.is_coloured = self.is_coloured or len(parts) > 1
        shown = [part if index % 2 else escape_log(part) for index, part in enumerate(parts)]
        sys.stdout.write("".join(shown))

    def flush(self) -> None:
        sys.stdout.flush()

    def close(self) -> None:
        """Print what was held back, and end all colours."""
        if self.is_terminal:
            self._write(self.held + self.decode(b"", True))
            if self.is_coloured:
                sys.stdout.write("\x1b[0m")
        self.flush()


def escape_log(text: str) -> str:
    """Return a piece of a log as text. A carriage return stays: bars are drawn with it, and it does
    not leave its line."""
    return "\r".join(escape(part) for part in text.split("\r"))


def print_logs(paths: Sequence[Path], printer: Printer, last: int | None) -> None:
    """Print files whole, part by part, or their last lines."""
    if last is not None:
        printer.print(last_lines(b"".join(read_end(path, last) for path in paths), last))
        return
    for path in paths:
        try:
            file = opening.open_file(path)
        except OSError as error:
            output.say(f"note: {path.name} can't be read: {error.strerror}")
            continue
        try:
            for part in opening.read_parts(file, 0, os.fstat(file).st_size):
                printer.print(part)
        finally:
            os.close(file)


def read_end(path: Path, lines: int | None) -> bytes:
    """Return the end of a file that holds so many lines, or as much as is read into memory."""
    size = FIRST_BYTES if lines is not None else MOST_BYTES
    while True:
        try:
            found = opening.read(path, size)
        except OSError as error:
            output.say(f"note: {path.name} can't be read: {error.strerror}")
            return b""
        is_whole = size >= opening.measure(path)
        if is_whole or (lines is not None and found.count(b"\n") > lines):
            return found
        if size >= MOST_BYTES:
            output.say(f"note: {path.name} is long: the last {MOST_BYTES // 2**20} MB of it")
            return found
        size *= 8


def find_logs(run: RunDir, rank: int) -> list[Path]:
    """Return the last attempt's log; when the ranks printed nothing, what the launcher printed."""
    attempt = run.last_attempt()
    if attempt is None:
        raise RunNotFound(
            f"run {run.id} has not started: it has no log yet", f"rampup show {run.id}"
        )
    check_rank(run, attempt, rank)
    log = attempt.rank_log(rank)
    if os.path.lexists(log) and not (opening.is_file(log) and opening.measure(log) == 0):
        return [log]
    return [path for path in (attempt.job_log, *run.slurm_logs()) if opening.is_file(path)]


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


def follow_log(run: RunDir, rank: int, printer: Printer, last: int | None = None) -> None:
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
            kept = b""
            while printed := tail.read():
                if last is None:
                    printer.print(printed)
                else:
                    kept = last_lines(kept + printed, last)
            if kept:  # what was there before is cut once
                printer.print(kept)
                last = None
            printer.flush()
        if ended:
            output.say(f"{run.id} {state_of(run).name}")
            return
        time.sleep(POLL_S)
