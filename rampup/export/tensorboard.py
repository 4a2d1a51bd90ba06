"""TensorBoard's files from the rows of a run: for a run whose `tb/` was lost or never written, or
in another place.

A `Tracker` of `rampup export`. One file per attempt, with the same content as the live mirror
wrote. Pictures and PR curves are only in the old files, and are carried over from there as far as
those can be read.
"""

import os
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from rampup.core import tfevents as event_format
from rampup.core.metrics import get_step, name_numbers
from rampup.errors import Refused
from rampup.export.tracker import Sent, Source, Target, parse_time, safe_name
from rampup.rundir import opening
from rampup.rundir.files import AttemptDir, RunDir
from rampup.rundir.trust import refuse_foreign

PACKAGES: tuple[str, ...] = ()
OPTIONS: tuple[str, ...] = ("out",)
CHANGED = ""


def destination(target: Target) -> str:
    return "tb/ in each run" if target.out is None else str(target.out.absolute())


def next_command(where: str, sent: Sequence[Sent]) -> str:
    folder = os.path.commonpath([each.where for each in sent])
    return f"tensorboard --logdir {shlex.quote(folder)}"


def export(sources: Sequence[Source], target: Target) -> list[Sent]:
    return [send(source, target) for source in sources]


def send(source: Source, target: Target) -> Sent:
    run = source.run
    if target.out is None and not source.finished:
        raise Refused(
            f"run {source.id} is {source.state}, and writes its own {run.tensorboard}",
            "--out DIR for a copy",
        )
    folder = run.tensorboard
    if target.out is None:
        refuse_foreign(run, "write into it: --out DIR for a copy")
    else:
        folder = target.out.absolute() / safe_name(f"{source.name}-{source.id}")
    new, rows = not folder.exists(), 0
    try:
        opening.refuse_link(folder)
        for attempt in run.attempts():
            found = b"".join(attempt_records(source, attempt))
            if found:
                write_whole(folder / run.tensorboard_file(attempt.number).name, found)
                rows += len(attempt.metrics())
    except OSError as error:
        raise Refused(
            f"can't write into {folder}: {error.strerror}", "--out DIR, one that you can write"
        ) from None
    return Sent(source.id, str(folder), len(source.rows), rows, new)


def attempt_records(source: Source, attempt: AttemptDir) -> Iterator[bytes]:
    rows = [
        row for row in attempt.metrics() if get_step(row) is not None and parse_time(row.get("t"))
    ]
    pictures = list(picture_records(source.run, attempt.number))
    if not rows and not pictures:
        return
    began = parse_time(attempt.facts.get("started")) or (rows[0]["t"] if rows else source.created)
    yield event_format.version(began)
    yield event_format.hparams_start(began, source.id, source.settings)
    yield event_format.session_start(began, attempt.resume_step() + 1)
    for row in rows:
        values = name_numbers(row)
        if values:
            yield event_format.scalars(row["t"], get_step(row) or 0, values)
    yield from pictures
    end = attempt.event("end")
    if end is not None:
        yield event_format.hparams_end(parse_time(end.get("t")) or began)


def picture_records(run: RunDir, attempt: int) -> Iterator[bytes]:
    try:
        data = opening.read(run.tensorboard_file(attempt))
    except OSError:
        return
    for record in event_format.read_records(data):
        try:
            if event_format.is_picture(record):
                yield event_format.frame(record)
        except ValueError:  # whole, but not one of ours
            continue


def write_whole(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}".replace("tfevents", "making"))
    beside.write_bytes(content)
    os.replace(beside, path)
