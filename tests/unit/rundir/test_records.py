"""Reading what others wrote: whole, torn, growing, huge, or not there."""

import json
import os
import resource
import threading
from pathlib import Path

import pytest

from rampup.errors import Refused
from rampup.rundir import find as runs
from rampup.rundir import records
from rampup.rundir.files import RunDir
from rampup.rundir.records import read_bytes, read_json, read_jsonl, write_user_file


def test_torn_and_foreign_lines_are_skipped(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_bytes(b'{"a": 1}\n\n[2]\n{"b": "\xff"}\nnot json\n{"c": 3}\n{"d": ')
    assert [row for row in read_jsonl(file) if "b" not in row] == [{"a": 1}, {"c": 3}]
    assert list(read_jsonl(tmp_path / "nothing")) == []


@pytest.mark.parametrize("tail", [1, 8, 9, 10, 17, 18, 1000])
def test_the_end_of_a_file_begins_with_a_whole_line(tmp_path: Path, tail: int) -> None:
    file = tmp_path / "rows.jsonl"
    # nine bytes each
    file.write_text("".join(json.dumps({"a": number}) + "\n" for number in range(4)))
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
def test_the_name_of_a_directory_tells_the_runs_name_and_time(
    directory: str, told: tuple[str, float | None]
) -> None:
    assert runs.parse_run_name(RunDir(f"/runs/{directory}")) == told


# files that a user names --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("file/x", "Not a directory"),
        ("no/where", "No such file"),
        ("x" * 300, "File name too long"),
        (".", "it is a directory"),
        ("", "it is a directory"),
        ("/", "it is a directory"),
        ("folder", "it is a directory"),
        ("folder/..", "it is a directory"),
        ("circle", "symbolic links"),
    ],
)
def test_what_can_not_be_a_file_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("old")
    Path("folder").mkdir()
    Path("circle").symlink_to("circle")
    with pytest.raises(Refused, match=said) as refused:
        write_user_file(Path(name), b"new")
    assert str(Path(name)) in str(refused.value) and "--out FILE" in refused.value.hint
    assert (
        sorted(os.listdir()) == ["circle", "file", "folder"] and Path("file").read_text() == "old"
    )


@pytest.mark.parametrize("name", ["new", "x" * 255, "file", "link", "dangling"])
def test_a_file_is_written_whole_and_a_link_stays_a_link(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("something that is longer")
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "dangling").symlink_to("target")
    write_user_file(tmp_path / name, b"new")
    assert (tmp_path / name).read_text() == "new"
    assert (tmp_path / "link").is_symlink() and (tmp_path / "dangling").is_symlink()
    assert {"file", "link", "dangling", name} >= set(os.listdir(tmp_path)) - {"target"}


@pytest.mark.parametrize("name", ["pipe", "link"])
def test_a_pipe_is_written_into_and_stays(tmp_path: Path, name: str) -> None:
    """As /dev/stdout often is: a link to a pipe."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    got: list[bytes] = []
    reader = threading.Thread(
        target=lambda: got.append((tmp_path / "pipe").read_bytes()), daemon=True
    )
    reader.start()
    write_user_file(tmp_path / name, b"new")
    reader.join(10)
    assert got == [b"new"] and (tmp_path / "pipe").is_fifo() and (tmp_path / "link").is_symlink()
    assert sorted(os.listdir(tmp_path)) == ["link", "pipe"]


def test_a_file_that_does_not_fit_leaves_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    records.write_text(path, "before")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            records.write_text(path, "x" * 20_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [entry.name for entry in tmp_path.iterdir()] == ["config.json"]
    assert path.read_text() == "before"
