"""Decoded samples on the node's own disk: each decoded once, checked, and never worth a run."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rampup.data.reader import Field, SampleReader
from rampup.data.staging import decoded as room
from rampup.data.staging.decoded import DecodedReader
from rampup.data.staging.place import Folder, Place

SIZE = 20


class Slow(SampleReader):
    """Counts what it has decoded."""

    fields = (Field((3, 2), np.float32), Field((), np.int64))

    def __init__(self, file: Path) -> None:
        self.decoded: list[int] = []
        self.file = file
        if not file.exists():
            file.write_text("data")

    def __len__(self) -> int:
        return SIZE

    def files(self) -> list[Path]:
        return [self.file]

    def read(self, indices: Any, out: Any) -> None:
        self.decoded += indices.tolist()
        out[0][:] = indices[:, None, None] / 7
        out[1][:] = indices


class Rank:
    def __init__(self, tmp_path: Path, attempt: int = 1) -> None:
        (tmp_path / "disk").mkdir(exist_ok=True)
        self.said: list[str] = []
        self.slow = Slow(tmp_path / "data.h5")
        self.folder = Place(tmp_path / "disk", "run").folder("training")
        self.reader = DecodedReader(self.slow, self.folder, attempt, self.said.append)

    def read(self, *indices: int) -> list[int]:
        """Check what is read; returns which samples were decoded for it."""
        self.slow.decoded = []
        wanted = np.array(indices)
        out = np.full((len(indices), 3, 2), -1, np.float32), np.full(len(indices), -1)
        self.reader.read(wanted, out)
        assert (out[0] == (wanted / 7).astype(np.float32)[:, None, None]).all()
        assert (out[1] == wanted).all()
        return self.slow.decoded

    def file(self, end: str) -> Path:
        (found,) = self.folder.path.glob(f"*{end}")
        return found


def test_each_sample_is_decoded_once_for_all_ranks(tmp_path: Path) -> None:
    one, other = Rank(tmp_path), Rank(tmp_path)
    assert one.read(5, 3, 9) == [5, 3, 9]
    assert one.read(3, 5) == []
    assert other.read(9, 1, 2, 5, 4) == [1, 2, 4]
    assert one.read(*range(10)) == [0, 6, 7, 8]
    assert one.reader.facts()["hits"] == 2 + 6
    assert other.reader.facts()["reads"] == 5
    assert one.reader.facts()["staged_bytes"] == 7 * 32
    assert len(one.reader) == SIZE and one.reader.files() == one.slow.files()


def test_the_next_attempt_checks_each_record_and_uses_it(tmp_path: Path) -> None:
    Rank(tmp_path).read(*range(SIZE))
    after = Rank(tmp_path, attempt=2)
    assert after.read(*range(SIZE)) == []
    data = bytearray(after.file(".raw").read_bytes())
    data[4 * 32 + 3] ^= 1
    after.file(".raw").write_bytes(data)
    third = Rank(tmp_path, attempt=3)
    assert third.read(*range(SIZE)) == [4], "one bit of sample 4 has changed"
    assert third.read(4) == []


def test_a_record_that_is_not_whole_does_not_count(tmp_path: Path) -> None:
    Rank(tmp_path).read(0, 1, 2)
    after = Rank(tmp_path)
    os.truncate(after.file(".raw"), 2 * 32 + 5)
    assert after.read(0, 1, 2) == [2]


def test_other_data_has_another_cache(tmp_path: Path) -> None:
    Rank(tmp_path).read(0)
    (tmp_path / "data.h5").write_text("other data")
    assert Rank(tmp_path, attempt=2).read(0) == [0]


def test_a_full_disk_ends_the_staging_with_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = Rank(tmp_path), Rank(tmp_path)
    one.read(0, 1)
    monkeypatch.setattr(Folder, "free_bytes", lambda folder: 0)
    assert one.read(0, 1, 2, 3) == [2, 3]
    assert other.read(4, 0) == [4]
    (line,) = one.said + other.said
    assert line.startswith("note: no more is staged, the files themselves are read: ")
    assert "is full" in line
    assert one.read(0, 1, 2) == [2], "what is staged stays in use"


def test_a_write_that_fails_costs_the_record_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rank = Rank(tmp_path)

    def fail(fd: int, parts: Any, offset: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(room, "_write", fail)
    assert rank.read(7, 8) == [7, 8]
    assert rank.read(7) == [7]
    assert len(rank.said) == 1 and "No space left on device" in rank.said[0]


def test_too_little_room_is_said_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Folder, "free_bytes", lambda folder: 100)
    rank = Rank(tmp_path)
    (line,) = rank.said
    assert f"room for 100 bytes, and the decoded samples are {SIZE * 32} bytes" in line
    assert line.endswith("as many are staged as fit")


def test_runs_of_rows() -> None:
    assert list(room._runs([0, 1, 2, 5, 7, 8])) == [(0, 3), (5, 6), (7, 9)]
    assert list(room._runs([])) == []
