"""The right to start a run, and what became of it: files in `submissions/`, rows in control.jsonl.

A process that wants to hand a run to a scheduler first claims the next number by a file that nobody
else can make: `submissions/<n>.json`. So a run is never started twice, whatever happens to locks.
Then it writes down what it is about to do (`submitting`), and last how that ended (`submitted` or
`not submitted`). A process that dies in between leaves an open submission: its scheduler knows
whether there is a job, by the name of the job. A start that was cancelled inside a job of many runs
has `submissions/<n>.cancelled` beside its claim. Only runs/ decides what an open submission means.
"""

import contextlib
import os
import re
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from rampup.core import processes
from rampup.errors import Refused, SchedulerError
from rampup.rundir import clocks, opening, records, schema
from rampup.rundir.files import RunDir
from rampup.rundir.records import Record

NAME = re.compile("([1-9][0-9]{0,5})\\.json")
ROOM_BYTES = 16_384
"""Kept free while a job is submitted, so that its id can be written down on a full disk."""
ROW_BYTES = 4096
"""The same for each run of a study: a row may need a new block of its file."""
ABSENT_S = 240.0
"""A process of another host counts as alive for so long after it wrote down what it is doing:
longer than all its tries to submit take."""


# claims -------------------------------------------------------------------------------------------


def newest_claim(run: RunDir) -> tuple[int, Record]:
    """Return the number of the newest claim, and the process that made it; 0 where there is none."""
    if run.submissions.is_symlink():
        return 0, {}
    try:
        with os.scandir(run.submissions) as entries:
            numbers = [int(found[1]) for it in entries if (found := NAME.fullmatch(it.name))]
    except OSError:
        return 0, {}
    if not numbers:
        return 0, {}
    claim = records.read_json(claim_file(run, max(numbers)))
    return max(numbers), schema.drop_foreign(claim, schema.CONTROL)


def claim_file(run: RunDir, number: int) -> Path:
    return run.submissions / f"{number}.json"


def claim_first(made: RunDir) -> None:
    """Claim the first start of a run that nobody sees yet."""
    made.submissions.mkdir()
    records.write_new(claim_file(made, 1), describe_process())


def claim(run: RunDir, number: int) -> None:
    """Claim a start; a process that comes second is refused."""
    mine = run.submissions / f".{os.urandom(8).hex()}"
    try:
        opening.refuse_link(run.submissions)
        run.submissions.mkdir(exist_ok=True)
        records.write_new(mine, describe_process())
        records.sync(mine)
        make_name(mine, claim_file(run, number))
        records.sync(run.submissions)
    except FileExistsError:
        raise refuse_second(run) from None
    except OSError as error:
        raise records.refuse_write(run.path, error) from None
    finally:
        if not run.submissions.is_symlink():
            mine.unlink(missing_ok=True)


def make_name(mine: Path, name: Path) -> None:
    """Give a file its final name, if nobody else has that name."""
    try:
        os.link(mine, name)
    except FileExistsError:
        raise
    except OSError:  # a file system without links
        descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        with open(descriptor, "wb") as file:
            file.write(mine.read_bytes())
            file.flush()
            os.fsync(file.fileno())


def mark_cancelled(run: RunDir) -> None:
    """Leave a file whose name says that the newest start of a run was cancelled: the script of a
    pack looks for it."""
    number, _ = newest_claim(run)
    if not number:  # rampup 0.1.0 wrote no claims, and its packs read control.jsonl
        return
    try:
        opening.refuse_link(run.submissions)
        opening.touch(run.submissions / f"{number}.cancelled")
    except OSError as error:
        raise records.refuse_write(run.path, error) from None


def refuse_second(run: RunDir) -> Refused:
    return Refused(
        f"run {run.id} is being started by another process", f"see it with: rampup show {run.id}"
    )


def find_own_claim(run: RunDir) -> int:
    """Return the number of the newest claim. A process that has lost it to another one, because it
    was away for long, is refused."""
    number, claim = newest_claim(run)
    me = processes.identify(os.getpid())
    if number and any(claim.get(name) != value for name, value in me.items()):
        raise refuse_second(run)
    return number


def describe_start(run: RunDir) -> Record:
    """Return the number of this process's claim, and that of the attempt before it."""
    newest = run.last_attempt()
    return {"number": find_own_claim(run), "after": newest.number if newest else 0}


def describe_process() -> Record:
    return {"t": time.time(), **processes.identify(os.getpid())}


# what a process is about to do, and how it ended --------------------------------------------------


def record_submitting(run: RunDir, asked: Record, program: Record) -> None:
    """Write down what is about to happen; `program` is the process that will do it."""
    who = processes.identify(os.getpid())
    run.record("submitting", durable=True, **asked, **who, program=program)


def record_submitted(run: RunDir, asked: Record, job: str) -> None:
    """Write down the job of a submission; `asked` is what was written down before."""
    kept = ("number", "after", "scheduler", "cluster", "job_name", "packed")
    facts = {key: asked[key] for key in kept if key in asked}
    run.record("submitted", durable="task" not in asked, **facts, job=name_job(asked, job))


def name_job(asked: Record, job: str) -> str:
    """Return the part of a job that a submission asked for: the whole, or one task of an array."""
    is_task = "task" in asked and not asked.get("packed")
    return f"{job}_{asked['task']}" if is_task else job


def keep_submitted(run: RunDir, asked: Record, job: str) -> None:
    """Write down the job of a submission, or say where it can be found."""
    try:
        record_submitted(run, asked, job)
    except OSError as error:
        raise SchedulerError(
            f"run {run.id} was submitted as job {job}, but {run.control_file} can't be written: "
            f"{error.strerror}",
            f"free some space; rampup finds the job by its name, {asked['job_name']}",
        ) from None


def find_open(rows: Iterable[Record]) -> Record | None:
    """Return the submission of which nobody has written down how it ended, if there is one."""
    found = None
    for row in rows:
        if row.get("what") == "submitting":
            found = row
        elif row.get("what") in ("submitted", "not submitted"):
            found = None
    return found and schema.drop_foreign(found, schema.CONTROL)


def is_in_progress(record: Record, file: Path) -> bool:
    """Return whether a process that claimed a start, or the program that it started for it, may
    still be at work; `file` is where it wrote that down."""
    if processes.is_alive(record) or processes.is_alive(record.get("program") or {}):
        return True
    if record.get("host") in (None, processes.host()):  # rampup 0.1.0 names no process
        return False
    return clocks.age_of_file(file) < ABSENT_S


def is_being_started(run: RunDir) -> bool:
    """Return whether a process has the right to start this run, and has not yet used it."""
    number, claim = newest_claim(run)
    used = ("submitted", "not submitted")
    is_used = any(row.get("number") == number for row in run.control() if row.get("what") in used)
    return number > 0 and not is_used and is_in_progress(claim, claim_file(run, number))


@contextlib.contextmanager
def reserved_room(run: RunDir, runs: int = 1) -> Iterator[None]:
    """Keep some room on the disk for what has to be written down afterwards, for so many runs."""
    room = run.submissions / f".room-{os.urandom(4).hex()}"
    try:
        opening.refuse_link(run.submissions)
        run.submissions.mkdir(exist_ok=True)
        for left in run.submissions.glob(".room-*"):  # by a process that was killed
            left.unlink(missing_ok=True)
        room.write_bytes(
            os.urandom(max(ROOM_BYTES, ROW_BYTES * runs))
        )  # what a file system can't compress
        records.sync(room)
    except OSError as error:
        if not run.submissions.is_symlink():
            room.unlink(missing_ok=True)
        raise records.refuse_write(run.path, error) from None
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            room.unlink(missing_ok=True)
