"""What is missing, torn or foreign in a run directory, in words for people.

`show` and the report call it. All other readers silently leave such things out, so that the run is
still listed and shown. It never changes a file.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import msgspec

from rampup.core.metrics import LARGEST
from rampup.rundir import schema
from rampup.rundir.files import RunDir
from rampup.rundir.records import decode_lines, read_bytes, read_json, read_jsonl


class RowPlace(msgspec.Struct):
    """schema.METRICS as msgspec checks it, without making a million rows of metrics into
    dictionaries."""

    step: Annotated[float, msgspec.Meta(gt=-LARGEST, lt=LARGEST)] = 0.0
    t: Annotated[float, msgspec.Meta(ge=0, lt=schema.LATEST)] = 0.0


PLACES = msgspec.json.Decoder(RowPlace)


def find_damage(run: RunDir) -> list[str]:
    return [f"{path.relative_to(run.path)}: {words}" for path, words in _find(run)]


def _find(run: RunDir) -> Iterator[tuple[Path, str]]:
    for path, expected in (
        (run.run_file, schema.RUN),
        (run.config_file, schema.CONFIG),
        (run.env_file, schema.ENV),
    ):
        yield from _check_file(path, expected)
    yield from _check_lines(run.control_file, schema.CONTROL)
    for attempt in run.attempts():
        yield from _check_file(attempt.facts_file, schema.ATTEMPT)
        for path in attempt.error_files():
            yield from _check_file(path, schema.ERROR)
        if attempt.evaluation_file.exists():
            yield from _check_file(attempt.evaluation_file, schema.EVALUATION)
        if attempt.settings_file.exists():
            yield from _check_file(attempt.settings_file, schema.SETTINGS)
        yield from _check_lines(attempt.events_file, schema.EVENT)
        yield from _check_lines(attempt.metrics_file, schema.METRICS, PLACES)
        for path in attempt.system_files():
            yield from _check_lines(path, schema.SAMPLE)


def _check_file(path: Path, expected: schema.Schema) -> Iterator[tuple[Path, str]]:
    record = read_json(path)
    wrong = schema.find_foreign(record, expected)
    if not record and not os.path.lexists(path):
        yield path, "missing"
    elif not record:
        yield path, "torn or foreign" if os.access(path, os.R_OK) else "not readable by you"
    elif wrong:
        yield path, f"{', '.join(wrong)}: foreign and left out"


def _check_lines(
    path: Path, expected: schema.Schema, quick: msgspec.json.Decoder[Any] | None = None
) -> Iterator[tuple[Path, str]]:
    """Check a growing file; it may rightly not exist. What `quick` can decode is sound."""
    try:
        data = read_bytes(path)
    except FileNotFoundError:
        return
    except OSError as error:
        yield path, error.strerror or "unreadable"
        return
    lines = data.splitlines()
    broken = sum(1 for line in lines if line.strip() and not _is_object(line))
    if broken:
        count = "1 line is" if broken == 1 else f"{broken} lines are"
        yield path, f"{count} torn or foreign and left out"
    if quick is not None:
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            quick.decode_lines(data)
            return
    if any(schema.find_foreign(row, expected) for row in read_jsonl(path)):
        yield path, _describe_foreign(lines, expected)


def _is_object(line: bytes) -> bool:
    return line[:1] == b"{" and line.rstrip()[-1:] == b"}"


def _describe_foreign(lines: list[bytes], expected: schema.Schema) -> str:
    """Say where: read line by line, which is slow, because somebody will want to look there."""
    wrong: dict[int, list[str]] = {}
    for number, line in enumerate(lines, 1):
        for row in decode_lines(line):
            if names := schema.find_foreign(row, expected):
                wrong[number] = names
    first = min(wrong)
    where = f"line {first}" if len(wrong) == 1 else f"{len(wrong)} lines, the first is {first}"
    names = sorted({name for found in wrong.values() for name in found})
    return f"{', '.join(names)}: foreign and left out ({where})"
