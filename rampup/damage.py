"""What of a run directory is missing, torn or foreign, in words for people. Read by `show` and the report; the rest of
the readers leave such things out without a word, so that the run is still listed and shown."""

from collections.abc import Iterator
from pathlib import Path

from rampup import shapes
from rampup.records import read_json, read_jsonl
from rampup.rundir import RunDir


def damage_of(run: RunDir) -> list[str]:
    return [f"{path.relative_to(run.path)}: {words}" for path, words in _found(run)]


def _found(run: RunDir) -> Iterator[tuple[Path, str]]:
    for path, shape in ((run.run_file, shapes.RUN), (run.config_file, shapes.CONFIG), (run.env_file, {})):
        yield from _whole(path, shape)
    yield from _lines(run.control_file, shapes.CONTROL)
    for attempt in run.attempts():
        yield from _whole(attempt.facts_file, shapes.ATTEMPT)
        for path in sorted(attempt.path.glob(attempt.error_file(0).name.replace("0", "*"))):
            yield from _whole(path, shapes.ERROR)
        yield from _lines(attempt.events_file, shapes.EVENT)
        yield from _lines(attempt.metrics_file, {})
        for path in sorted(attempt.path.glob(attempt.system_file("*").name)):
            yield from _lines(path, shapes.SAMPLE)


def _whole(path: Path, shape: shapes.Shape) -> Iterator[tuple[Path, str]]:
    record = read_json(path)
    wrong = shapes.foreign(record, shape)
    if not record:
        yield path, "torn or foreign" if path.exists() else "missing"
    elif wrong:
        yield path, f"{', '.join(wrong)}: foreign and left out"


def _lines(path: Path, shape: shapes.Shape) -> Iterator[tuple[Path, str]]:
    """Of a growing file; that there is none may be as it should."""
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        return
    except OSError as error:
        yield path, error.strerror or "unreadable"
        return
    broken = sum(1 for line in lines if line.strip() and not (line[:1] == b"{" and line.rstrip()[-1:] == b"}"))
    if broken:
        yield path, f"{'1 line is' if broken == 1 else f'{broken} lines are'} torn or foreign and left out"
    wrong = {name for row in read_jsonl(path) for name in shapes.foreign(row, shape)} if shape else set()
    if wrong:
        yield path, f"{', '.join(sorted(wrong))}: foreign and left out"
