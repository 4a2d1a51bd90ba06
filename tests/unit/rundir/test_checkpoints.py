"""The names among the checkpoints: what is ours, which copy of a step counts, and what can't be read
is not damaged."""

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rampup.rundir import checkpoints
from rampup.rundir.checkpoints import Checkpoint, Damaged, Kind, Unreadable
from rampup.rundir.files import RunDir


@pytest.mark.parametrize(
    ("name", "kind", "step", "attempt"),
    [
        ("step-0", Kind.STEP, 0, 0),
        ("step-1650", Kind.STEP, 1650, 0),
        ("step-7.tmp-2", Kind.UNFINISHED, 7, 2),
        ("step-7.old-12", Kind.REPLACED, 7, 12),
        ("damaged-step-7", Kind.DAMAGED, 7, 0),
        ("skipped-step-7", Kind.SKIPPED, 7, 0),
        ("skipped-step-7.old-2", Kind.SKIPPED, 7, 2),
        ("trash-1794000001-step-7", Kind.TRASH, -1, 0),
        ("trash-1794000001", Kind.TRASH, -1, 0),
    ],
)
def test_names_that_rampup_gives(name: str, kind: Kind, step: int, attempt: int) -> None:
    found = checkpoints.parse_name(Path("checkpoints") / name)
    assert found is not None
    assert (found.kind, found.step, found.attempt) == (kind, step, attempt)


@pytest.mark.parametrize(
    "name",
    [
        *("step-", "step-007", "step-\u00b2", "step-7x", "step-7.tmp", "step-7.tmp-", "step--7"),
        *("my-step-7", "damaged-step-7.tmp-1", "trash-can", "trash", "precious", "notes.tmp-1"),
    ],
)
def test_names_of_others(name: str) -> None:
    assert checkpoints.parse_name(Path("checkpoints") / name) is None


def test_which_copy_of_a_step_counts(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    for name in ("step-3.old-1", "step-3.old-2", "step-7.old-2", "step-7", "step-10", "notes"):
        (run.checkpoints / name).mkdir(parents=True)
    copies = checkpoints.find_copies(checkpoints.list_entries(run))
    assert [entry.name for entry in copies.values()] == ["step-10", "step-7", "step-3.old-2"]
    assert checkpoints.list_steps(run) == [10, 7]


# what can't be read -------------------------------------------------------------------------------


@contextmanager
def no_more_files() -> Iterator[None]:
    """This process can open no further file."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A checkpoint of step 7."""
    folder = tmp_path / "checkpoints" / "step-7"
    folder.mkdir(parents=True)
    facts = {"step": 7, "t": 0.0, "attempt": 1, "files": {}, "meta": {}}
    (folder / "manifest.json").write_bytes(checkpoints.seal_manifest(facts))
    return folder


def test_too_many_open_files_are_not_damage(folder: Path) -> None:
    with pytest.raises(Unreadable, match="Too many open files"), no_more_files():
        checkpoints.verify_copy(folder, 7)
    with pytest.raises(Unreadable, match="Too many open files"), no_more_files():
        checkpoints.list_names(RunDir(folder.parents[1]))


@pytest.mark.parametrize("file", [None, "folder"])
def test_what_is_missing_is_damage(folder: Path, file: str | None) -> None:
    (folder / "manifest.json").unlink()
    if file:
        (folder / "manifest.json").mkdir()
    with pytest.raises(Damaged, match=r"manifest\.json: (No such file|Is a directory)"):
        checkpoints.verify_copy(folder, 7)


@pytest.mark.parametrize(
    "odd",
    [
        {"files": []},
        {"files": {"a": 5}},
        {"files": {"a": {"size": 1}}},
        {"files": {"../../run.json": {"size": 1, "sha256": "x"}}},
        {"meta": []},
        {"meta": {"best": 5}},
        {"meta": {"best": {"step": "x"}}},
        {"attempt": "x"},
        {"t": "x"},
        {"t": None},
    ],
)
def test_a_manifest_with_a_right_sum_and_odd_values_is_damage(
    folder: Path, odd: dict[str, object]
) -> None:
    """Anybody can compute the sum."""
    facts = {**checkpoints.read_manifest(folder, 7), **odd}
    (folder / "manifest.json").write_bytes(checkpoints.seal_manifest(facts))
    with pytest.raises(Damaged, match="holds something foreign"):
        checkpoints.read_copy(folder, 7)
    for name in odd:
        left = {key: value for key, value in facts.items() if key != name}
        (folder / "manifest.json").write_bytes(checkpoints.seal_manifest(left))
        with pytest.raises(Damaged, match="holds something foreign"):
            checkpoints.read_copy(folder, 7)


def test_a_plain_file_in_place_of_a_checkpoint_is_damage(tmp_path: Path) -> None:
    (tmp_path / "step-7").write_text("")
    with pytest.raises(Damaged, match="Not a directory"):
        checkpoints.verify_copy(tmp_path / "step-7", 7)


def test_reading_is_tried_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "RETRY_AFTER_S", (0.0, 0.0))
    answers = [errno.EIO, errno.ESTALE, None, errno.EIO, errno.EIO, errno.ETIMEDOUT]

    def read(path: Path, step: int) -> Checkpoint:
        answer = answers.pop(0)
        if answer is not None:
            raise Unreadable(path, os.strerror(answer))
        return checkpoints.verify_copy(path, step)

    assert checkpoints.retry(read, folder, 7).step == 7
    with pytest.raises(Unreadable, match="timed out"):
        checkpoints.retry(read, folder, 7)
