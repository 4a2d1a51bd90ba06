"""What lies in a run is opened as a plain file of that run, or not at all."""

import os
import stat
import time
from pathlib import Path

import pytest

from rampup.errors import Refused
from rampup.rundir import claims, locks, opening, records
from rampup.rundir.files import RunDir

TERABYTE = 10**12


def place_odd_things(folder: Path) -> dict[str, Path]:
    outside = folder / "outside"
    outside.write_text('{"mine": 1}\n')
    found = {name: folder / name for name in ("link", "dangling", "fifo", "device", "folder")}
    found["link"].symlink_to(outside)
    found["dangling"].symlink_to(folder / "nowhere")
    os.mkfifo(found["fifo"])
    found["device"].symlink_to("/dev/zero")
    found["folder"].mkdir()
    return found


@pytest.mark.parametrize("name", ["link", "dangling", "fifo", "device", "folder"])
def test_only_plain_files_are_read_and_written(tmp_path: Path, name: str) -> None:
    path = place_odd_things(tmp_path)[name]
    started = time.monotonic()
    assert records.read_json(path) == {} and list(records.read_jsonl(path)) == []
    assert opening.read_text(path) == "" and not opening.is_file(path)
    with pytest.raises(OSError, match=r"."):
        records.append_json(path, {"what": "ended"})
    with pytest.raises(Refused), locks.hold(path, "busy"):
        pass
    assert time.monotonic() - started < 2, "nothing blocks"
    assert (tmp_path / "outside").read_text() == '{"mine": 1}\n'
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes devices")
def test_a_device_is_no_file(tmp_path: Path) -> None:
    path = tmp_path / "zero"
    os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 5))
    assert records.read_json(path) == {} and opening.read_text(path) == ""


def test_a_file_with_another_name_is_not_appended_to(tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("mine\n")
    os.link(tmp_path / "outside", tmp_path / "control.jsonl")
    with pytest.raises(OSError, match="several names"):
        records.append_json(tmp_path / "control.jsonl", {"what": "ended"})
    assert (tmp_path / "outside").read_text() == "mine\n"


def test_holes_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    with open(path, "wb") as file:
        file.write(b'{"step": 1}\n')
        file.seek(TERABYTE)
        file.write(b'\n{"step": 2}\n')
    started = time.monotonic()
    assert [row["step"] for row in records.read_jsonl(path)] == [1, 2]
    assert opening.read_text(path, 100).strip("\0\n") == '{"step": 2}'
    assert time.monotonic() - started < 2


def test_what_is_read_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "MOST_BYTES", 2**21)
    monkeypatch.setattr(records, "LARGEST_OBJECT", 2**21)
    path = tmp_path / "large"
    row = b'{"step": 7, "words": "' + b"x" * 1000 + b'"}\n'
    path.write_bytes(row * 4000)
    found = list(records.read_jsonl(path))
    assert 1000 < len(found) < 2100 and found[-1]["step"] == 7, "of rows the end counts"
    path.write_bytes(b'{"a": "' + b"x" * 2**22 + b'"}')
    assert records.read_json(path) == {}


def test_a_crowd_of_tiny_records_does_not_fill_the_memory(tmp_path: Path) -> None:
    """With 60 million rows of `{}`, one run made `list` take minutes and 7 GB."""
    run = RunDir(tmp_path)
    (run.attempt(1).path).mkdir(parents=True)
    last = b'{"what": "submitted", "job": "7"}\n'
    for path in (run.control_file, run.attempt(1).metrics_file, run.attempt(1).events_file):
        path.write_bytes(b"{}\n" * 3 * 2**20 + last)
    for rows in (run.control(), run.attempt(1).metrics(), run.attempt(1).events()):
        assert len(rows) <= records.DENSE_BYTES / 3 + 1 and rows[-1]["job"] == "7"
    run.attempt(1).facts_file.write_bytes(b'{"job": "7", "a": [' + b"[]," * 2 * 2**20 + b"[]]}")
    assert run.attempt(1).facts == {}, "no launcher wrote that"
    long = b'{"job": "7", "cause": "' + b"x" * 6 * 2**20 + b'"}'
    run.attempt(1).facts_file.write_bytes(long)
    assert run.attempt(1).facts["job"] == "7"


def test_a_long_record_of_the_control_side_counts_by_its_end(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    row = b'{"what": "ended", "reason": "' + b"x" * 1000 + b'"}\n'
    run.control_file.write_bytes(row * 6000 + b'{"what": "submitted", "job": "7"}\n')
    assert 3000 < len(run.control()) < 5000
    assert run.jobs() == ["7"]


def test_folders_of_a_run_are_no_links(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (outside / "1").mkdir(parents=True)
    (outside / "1" / "attempt.json").write_text('{"outcome": "completed"}')
    (outside / "1.json").write_text("{}")
    run = RunDir(tmp_path / "20261117-010101-nice-abc234")
    run.path.mkdir()
    for name in ("attempts", "submissions"):
        (run.path / name).symlink_to(outside)
    assert run.attempt_numbers() == [] and claims.newest_claim(run) == (0, {})
    with pytest.raises(OSError, match="link"):
        run.claim_attempt()
    with pytest.raises(Refused, match="link"):
        claims.claim(run, 2)
    with pytest.raises(Refused, match="link"), claims.reserved_room(run):
        pass
    assert sorted(os.listdir(outside)) == ["1", "1.json"]


def test_a_reader_writes_nothing_into_a_folder_of_somebody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rampup.rundir import clocks

    made: list[object] = []
    monkeypatch.setattr("tempfile.TemporaryFile", lambda **where: made.append(where))
    monkeypatch.setattr(os, "geteuid", lambda: 4242)
    assert abs(clocks.now_in(tmp_path) - time.time()) < 5 and not made
