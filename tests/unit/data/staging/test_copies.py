"""Copies on the node's own disk: made once, checked, taken over, and never worth a run."""

import errno
import json
import os
import threading
import time
from pathlib import Path

import pytest

from rampup.data.staging import copies as room
from rampup.data.staging.copies import Copies
from rampup.data.staging.place import Folder, Place

DATA = os.urandom(50_000)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    path = tmp_path / "data" / "one.h5"
    path.write_bytes(DATA)
    return path


class Rank:
    """What one rank of an attempt sees."""

    def __init__(self, tmp_path: Path, attempt: int = 1, run: str = "run") -> None:
        (tmp_path / "disk").mkdir(exist_ok=True)
        self.said: list[str] = []
        self.is_stopping = False
        self.folder = Place(tmp_path / "disk", run).folder("training")
        self.copies = Copies(self.folder, attempt, self.said.append, lambda: self.is_stopping)

    def names(self) -> list[str]:
        return sorted(path.name for path in self.folder.path.iterdir())


def test_the_first_who_reads_a_file_copies_it_for_all(tmp_path: Path, source: Path) -> None:
    one, other = Rank(tmp_path), Rank(tmp_path)
    copy = one.copies.path_of(source)
    assert copy != str(source) and Path(copy).read_bytes() == DATA
    assert other.copies.path_of(source) == copy
    assert one.copies.path_of(source) == copy
    assert one.copies.facts()["staged_bytes"] == len(DATA)
    assert (one.copies.hits, one.copies.reads) == (1, 2)
    assert other.copies.facts()["staged_bytes"] == 0, "it was copied once"
    assert (one.said, other.said) == ([], [])


def test_a_rank_does_not_wait_for_another_one_that_copies(tmp_path: Path, source: Path) -> None:
    one, other = Rank(tmp_path), Rank(tmp_path)
    begun, go_on, found = threading.Event(), threading.Event(), []

    def stay() -> bool:
        begun.set()
        assert go_on.wait(20)
        return False

    one.copies._is_stopping = stay
    thread = threading.Thread(target=lambda: found.append(one.copies.path_of(source)))
    thread.start()
    assert begun.wait(20)
    assert other.copies.path_of(source) == str(source)
    assert one.copies.path_of(source) == str(source), "nor does another thread of the same rank"
    go_on.set()
    thread.join()
    assert other.copies.path_of(source) == found[0] != str(source)


def test_files_of_one_name_in_two_folders_are_two_files(tmp_path: Path, source: Path) -> None:
    (tmp_path / "more").mkdir()
    twin = tmp_path / "more" / source.name
    twin.write_bytes(b"other")
    rank = Rank(tmp_path)
    assert Path(rank.copies.path_of(source)).read_bytes() == DATA
    assert Path(rank.copies.path_of(twin)).read_bytes() == b"other"


def test_the_next_attempt_checks_a_copy_and_uses_it(tmp_path: Path, source: Path) -> None:
    copy = Rank(tmp_path).copies.path_of(source)
    after = Rank(tmp_path, attempt=2)
    assert after.copies.path_of(source) == copy
    assert after.copies.facts()["staged_bytes"] == 0


def test_a_damaged_copy_is_found_and_made_again(tmp_path: Path, source: Path) -> None:
    copy = Path(Rank(tmp_path).copies.path_of(source))
    data = bytearray(DATA)
    data[777] ^= 1
    copy.write_bytes(data)
    after = Rank(tmp_path, attempt=2)
    assert Path(after.copies.path_of(source)).read_bytes() == DATA
    assert after.copies.facts()["staged_bytes"] == len(DATA)


def test_a_file_that_has_changed_is_copied_again(tmp_path: Path, source: Path) -> None:
    Rank(tmp_path).copies.path_of(source)
    source.write_bytes(DATA[::-1])
    after = Rank(tmp_path, attempt=2)
    assert Path(after.copies.path_of(source)).read_bytes() == DATA[::-1]


def test_a_copy_that_vanished_is_no_loss(tmp_path: Path, source: Path) -> None:
    rank = Rank(tmp_path)
    os.unlink(rank.copies.path_of(source))
    assert rank.copies.path_of(source) == str(source)
    assert rank.said == []


def test_two_runs_on_one_node_have_copies_of_their_own(tmp_path: Path, source: Path) -> None:
    one, other = Rank(tmp_path, run="one"), Rank(tmp_path, run="other")
    assert one.copies.path_of(source) != other.copies.path_of(source)
    assert other.copies.facts()["staged_bytes"] == len(DATA)


# interrupted --------------------------------------------------------------------------------------


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "CHUNK_BYTES", 1000)
    monkeypatch.setattr(room, "JOURNAL_EVERY", 10)


def interrupt(rank: Rank, source: Path, after_chunks: int) -> None:
    asked = []

    def is_stopping() -> bool:
        asked.append(1)
        return len(asked) > after_chunks

    rank.copies._is_stopping = is_stopping
    assert rank.copies.path_of(source) == str(source), "the file itself is read meanwhile"


@pytest.mark.usefixtures("small_chunks")
def test_a_copy_that_a_stop_interrupts_is_continued_by_the_next_attempt(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt(Rank(tmp_path), source, 25)
    read: list[int] = []
    usual = room._write

    def note(fd: int, data: memoryview, offset: int) -> None:
        read.append(offset)
        usual(fd, data, offset)

    monkeypatch.setattr(room, "_write", note)
    after = Rank(tmp_path, attempt=2)
    assert Path(after.copies.path_of(source)).read_bytes() == DATA
    assert read[0] == 20_000, "from where the journal says"
    names = after.names()
    assert not [name for name in names if name.endswith((".part", ".journal"))]


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("harm", ["bit", "short", "journal", "source"])
def test_what_is_wrong_with_a_begun_copy_is_not_taken_over(
    tmp_path: Path, source: Path, harm: str
) -> None:
    first = Rank(tmp_path)
    interrupt(first, source, 25)
    part, journal = (
        next(path for path in first.folder.path.iterdir() if path.name.endswith(end))
        for end in (".part", ".journal")
    )
    if harm == "bit":
        data = bytearray(part.read_bytes())
        data[5] ^= 1
        part.write_bytes(data)
    elif harm == "short":
        part.write_bytes(part.read_bytes()[:100])
    elif harm == "journal":
        journal.write_text("{torn")
    else:
        source.write_bytes(DATA[::-1])
    after = Rank(tmp_path, attempt=2)
    assert Path(after.copies.path_of(source)).read_bytes() == source.read_bytes()


@pytest.mark.usefixtures("small_chunks")
def test_a_file_that_changes_while_it_is_copied_is_not_staged(tmp_path: Path, source: Path) -> None:
    rank = Rank(tmp_path)

    def change() -> bool:
        source.write_bytes(DATA + b"more")
        return False

    rank.copies._is_stopping = change
    assert rank.copies.path_of(source) == str(source)


def test_a_large_file_is_copied_while_training_continues(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "AT_ONCE_BYTES", 1000)
    rank = Rank(tmp_path)
    assert rank.copies.path_of(source) == str(source)
    deadline = time.monotonic() + 20
    while rank.copies.path_of(source) == str(source) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert Path(rank.copies.path_of(source)).read_bytes() == DATA
    rank.copies.is_off = True


# a full disk --------------------------------------------------------------------------------------


def full_at_once(folder: Folder) -> int:
    return 1000


def test_too_little_room_is_seen_before_anything_is_written(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Folder, "free_bytes", full_at_once)
    one, other = Rank(tmp_path), Rank(tmp_path)
    assert one.copies.path_of(source) == str(source)
    assert other.copies.path_of(source) == str(source)
    assert other.copies.is_off
    (line,) = one.said + other.said
    assert line.startswith("note: no more is staged, the files themselves are read: ")
    assert f"has room for 1 kB more, and {source} has 50 kB" in line
    assert not [name for name in one.names() if name.endswith(".part")]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_a_disk_that_fails_while_copying_costs_the_copy_alone(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    earlier = source.with_name("earlier.h5")
    earlier.write_bytes(b"earlier")
    rank = Rank(tmp_path)
    staged = rank.copies.path_of(earlier)

    def fail(fd: int, data: memoryview, offset: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(room, "_write", fail)
    assert rank.copies.path_of(source) == str(source)
    assert rank.copies.path_of(source) == str(source)
    (line,) = rank.said
    assert os.strerror(number) in line
    assert not [name for name in rank.names() if name.endswith(".part")], "it made room again"
    assert rank.copies.path_of(earlier) == staged, "what is staged stays in use"


def test_the_next_attempt_tries_again(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as full:
        full.setattr(Folder, "free_bytes", full_at_once)
        Rank(tmp_path).copies.path_of(source)
    assert Rank(tmp_path, attempt=2).copies.path_of(source) != str(source)


def test_a_vanished_file_is_left_to_the_reader(tmp_path: Path, source: Path) -> None:
    source.unlink()
    rank = Rank(tmp_path)
    assert rank.copies.path_of(source) == str(source)
    assert (rank.said, rank.copies.is_off) == ([], False)


def test_a_claim_of_a_killed_rank_is_worth_nothing_in_the_next_attempt(
    tmp_path: Path, source: Path
) -> None:
    killed = Rank(tmp_path)
    name = room._name_of(str(source))
    assert killed.folder.claim(f"{name}.claim-1")
    assert killed.copies.path_of(source) == str(source)
    assert Rank(tmp_path, attempt=2).copies.path_of(source) != str(source)


def test_a_torn_record_means_that_there_is_no_copy(tmp_path: Path, source: Path) -> None:
    copy = Rank(tmp_path).copies.path_of(source)
    Path(f"{copy}.json").write_text(json.dumps({"size": len(DATA)})[:-1])
    after = Rank(tmp_path, attempt=2)
    assert Path(after.copies.path_of(source)).read_bytes() == DATA
    assert after.copies.facts()["staged_bytes"] == len(DATA)
