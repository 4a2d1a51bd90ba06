"""Reading what others wrote: whole, torn, growing, huge, or not there."""

import json
from pathlib import Path

import pytest

from rampup import runs
from rampup.records import read_bytes, read_json, read_jsonl
from rampup.rundir import RunDir


def test_torn_and_foreign_lines_are_skipped(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_bytes(b'{"a": 1}\n\n[2]\n{"b": "\xff"}\nnot json\n{"c": 3}\n{"d": ')
    assert [row for row in read_jsonl(file) if "b" not in row] == [{"a": 1}, {"c": 3}]
    assert list(read_jsonl(tmp_path / "nothing")) == []


@pytest.mark.parametrize("tail", [1, 8, 9, 10, 17, 18, 1000])
def test_the_end_of_a_file_begins_with_a_whole_line(tmp_path: Path, tail: int) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps({"a": number}) + "\n" for number in range(4)))  # nine bytes each
    found = [row["a"] for row in read_jsonl(file, tail_bytes=tail)]
    assert found == list(range(4))[-len(found) :] if found else tail < 18
    assert len(found) == min(4, max(0, (tail - 1) // 9))


def test_a_file_is_read_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "some"
    file.write_bytes(b"")
    assert read_bytes(file) == b"" and read_json(file) == {}
    file.write_bytes(b"x" * 3_000_000)
    assert read_bytes(file) == b"x" * 3_000_000
    assert read_json(tmp_path) == {}, "a directory in its place"


@pytest.mark.parametrize(
    ("directory", "told"),
    [
        ("20260131-235959-my-run-abc123", ("my-run", 1769903999.0)),
        ("20260131-2359xx-my-run-abc123", ("my-run", None)),
        ("20261331-235959-x-abc123", ("x", None)),
    ],
)
def test_the_name_of_a_directory_tells_the_runs_name_and_time(directory: str, told: tuple[str, float | None]) -> None:
    assert runs.told_by_name(RunDir(f"/runs/{directory}")) == told
