"""What of a run directory is missing, torn or foreign, in words for people. Read by `show` and the
report; the rest of the readers leave such things out without a word, so that the run is still
listed and shown."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import msgspec

from rampup.core.metrics import LARGEST
from rampup.rundir import schema as shapes
from rampup.rundir.files import RunDir
from rampup.rundir.records import decode_lines, read_json, read_jsonl


class Place(msgspec.Struct):
    """shapes.METRICS as msgspec checks it: without making a million rows of metrics into
    dictionaries."""

    step: Annotated[float, msgspec.Meta(gt=-LARGEST, lt=LARGEST)] = 0.0
    t: Annotated[float, msgspec.Meta(ge=0, lt=shapes.LATEST)] = 0.0


PLACES = msgspec.json.Decoder(Place)


def damage_of(run: RunDir) -> list[str]:
    return [f"{path.relative_to(run.path)}: {words}" for path, words in _found(run)]


def _found(run: RunDir) -> Iterator[tuple[Path, str]]:
    for path, shape in (
        (run.run_file, shapes.RUN),
        (run.config_file, shapes.CONFIG),
        (run.env_file, {}),
    ):
        yield from _whole(path, shape)
    yield from _lines(run.control_file, shapes.CONTROL)
    for attempt in run.attempts():
        yield from _whole(attempt.facts_file, shapes.ATTEMPT)
        for path in sorted(attempt.path.glob(attempt.error_file(0).name.replace("0", "*"))):
            yield from _whole(path, shapes.ERROR)
        if attempt.evaluation_file.exists():
            yield from _whole(attempt.evaluation_file, shapes.EVALUATION)
        yield from _lines(attempt.events_file, shapes.EVENT)
        yield from _lines(attempt.metrics_file, shapes.METRICS, PLACES)
        for path in sorted(attempt.path.glob(attempt.system_file("*").name)):
            yield from _lines(path, shapes.SAMPLE)


def _whole(path: Path, shape: shapes.Schema) -> Iterator[tuple[Path, str]]:
    record = read_json(path)
    wrong = shapes.find_foreign(record, shape)
    if not record:
        yield path, "torn or foreign" if path.exists() else "missing"
    elif wrong:
        yield path, f"{', '.join(wrong)}: foreign and left out"


def _lines(
    path: Path, shape: shapes.Schema, quick: msgspec.json.Decoder[Any] | None = None
) -> Iterator[tuple[Path, str]]:
    """Of a growing file; that there is none may be as it should. What `quick` can decode is
    sound."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return
    except OSError as error:
        yield path, error.strerror or "unreadable"
        return
    lines = data.splitlines()
    broken = sum(
        1
        for line in lines
        if line.strip() and not (line[:1] == b"{" and line.rstrip()[-1:] == b"}")
    )
    if broken:
        yield (
            path,
            f"{'1 line is' if broken == 1 else f'{broken} lines are'} torn or foreign and left out",
        )
    if quick is not None:
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            quick.decode_lines(data)
            return
    if any(shapes.find_foreign(row, shape) for row in read_jsonl(path)):
        yield path, _foreign_in(lines, shape)


def _foreign_in(lines: list[bytes], shape: shapes.Schema) -> str:
    """Line by line, which is slow, to say where: somebody will want to look."""
    wrong = {
        number: names
        for number, line in enumerate(lines, 1)
        for row in decode_lines(line)
        if isinstance(row, dict) and (names := shapes.find_foreign(row, shape))
    }
    first = min(wrong)
    where = f"line {first}" if len(wrong) == 1 else f"{len(wrong)} lines, the first is {first}"
    return f"{', '.join(sorted({name for names in wrong.values() for name in names}))}: foreign and left out ({where})"
