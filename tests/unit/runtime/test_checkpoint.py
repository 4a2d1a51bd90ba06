"""Checkpoints are whole or not there, a damaged one is found, and a ghost of an older attempt
changes nothing."""

import json
import os
import resource
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rampup.errors import RampupError, Superseded
from rampup.rundir import checkpoints
from rampup.rundir.checkpoints import Damaged, verify_checkpoint
from rampup.rundir.files import RunDir
from rampup.runtime.checkpoints.store import CheckpointStore
from rampup.runtime.storage import StorageError


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return RunDir(tmp_path / "20260101-000000-name-abc123")


@pytest.fixture
def store(run: RunDir) -> CheckpointStore:
    return begin(run, 1)


def begin(run: RunDir, attempt: int) -> CheckpointStore:
    """A new attempt, as its rank 0 begins it."""
    run.attempt(attempt).path.mkdir(parents=True)
    store = CheckpointStore(run, attempt)
    store.take_over()
    return store


@pytest.fixture
def small_files() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5000, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def names(run: RunDir) -> list[str]:
    return sorted(path.name for path in run.checkpoints.iterdir())


def test_what_is_saved_is_loaded(run: RunDir, store: CheckpointStore) -> None:
    saved = store.save(
        7, {"state": lambda file: file.write(b"abc"), "note": b"x"}, {"world_size": 2}
    )
    assert saved.name == "step-7" and names(run) == ["step-7"]
    loaded = verify_checkpoint(run, 7)
    assert loaded.file("state").read_bytes() == b"abc" and loaded.meta == {"world_size": 2}
    manifest = json.loads((loaded.path / "manifest.json").read_text())
    assert (manifest["attempt"], manifest["files"]["state"]["size"]) == (1, 3)
    assert manifest["files"]["note"]["sha256"].startswith("2d711642b726b044")


def test_the_latest_is_the_newest_sound_one(
    run: RunDir, store: CheckpointStore, capsys: pytest.CaptureFixture[str]
) -> None:
    for step in (5, 10, 20, 100):
        store.save(step, {"state": b"0123456789"}, {})
    assert store.latest() is None, "not one of its own"
    (run.checkpoint(100) / "state").write_bytes(b"0123456780")
    os.truncate(run.checkpoint(20) / "state", 3)
    latest = begin(run, 2).latest()
    assert latest is not None and latest.step == 10
    assert (
        capsys.readouterr().out.count(
            "is damaged: state is not what was written; trying the one before"
        )
        == 2
    )


def damaged_in_every_way(path: Path) -> Iterator[str]:
    """Each byte of a file flipped in turn, and the file cut at each place."""
    data = path.read_bytes()
    for place in range(len(data)):
        path.write_bytes(data[:place] + bytes([data[place] ^ 1 << place % 8]) + data[place + 1 :])
        yield f"byte {place} of {path.name}"
        path.write_bytes(data[:place])
        yield f"{path.name} cut to {place}"
    path.write_bytes(data)


@pytest.mark.parametrize("name", ["manifest.json", "state"])
def test_any_byte_that_changes_is_found(run: RunDir, store: CheckpointStore, name: str) -> None:
    store.save(1, {"state": b"\x00\xff0123456789" * 3}, {"world_size": 2, "cpu": "\u00e9"})
    for damage in damaged_in_every_way(run.checkpoint(1) / name):
        try:
            verify_checkpoint(run, 1)
        except Damaged:
            continue
        pytest.fail(f"not found: {damage}")
    assert verify_checkpoint(run, 1).step == 1


def test_a_checkpoint_under_another_name_is_not_taken(run: RunDir, store: CheckpointStore) -> None:
    store.save(1, {"state": b"abc"}, {})
    run.checkpoint(1).rename(run.checkpoint(2))
    with pytest.raises(Damaged, match="not what was written"):
        verify_checkpoint(run, 2)


@pytest.mark.parametrize("broken", ["manifest.json", "state"])
def test_a_missing_file_is_named(run: RunDir, store: CheckpointStore, broken: str) -> None:
    store.save(1, {"state": b"abc"}, {})
    (run.checkpoint(1) / broken).unlink()
    with pytest.raises(Damaged, match=f"{broken}: No such file"):
        verify_checkpoint(run, 1)


def test_none_that_is_sound_is_an_error_not_a_new_start(
    run: RunDir, store: CheckpointStore
) -> None:
    for step in (1, 2):
        store.save(step, {"state": b"abc"}, {})
        (run.checkpoint(step) / "state").write_bytes(b"")
    with pytest.raises(RampupError, match="is valid, so this attempt can't resume") as caught:
        begin(run, 2).latest()
    assert "rampup clean abc123 --all" in caught.value.hint


def test_without_a_checkpoint_it_begins_anew(run: RunDir, store: CheckpointStore) -> None:
    (run.checkpoints / "step-9.tmp-1").mkdir(parents=True)
    assert begin(run, 2).latest() is None


# the same step again ------------------------------------------------------------------------------


def test_the_same_step_again_replaces_it(run: RunDir, store: CheckpointStore) -> None:
    store.save(3, {"state": b"old"}, {})
    store.save(3, {"state": b"new"}, {})
    assert verify_checkpoint(run, 3).file("state").read_bytes() == b"new"
    assert names(run) == ["step-3"]


def test_a_replacement_that_was_cut_off_gives_the_old_one_back(
    run: RunDir, store: CheckpointStore
) -> None:
    store.save(3, {"state": b"old"}, {})
    # as far as a killed attempt may have come
    run.checkpoint(3).rename(run.checkpoints / "step-3.old-1")
    (run.checkpoints / "step-3.tmp-1").mkdir()
    latest = begin(run, 2).latest()
    assert latest is not None and latest.file("state").read_bytes() == b"old"
    assert names(run) == ["step-3"]


def test_a_replacement_that_was_all_but_done_stays(run: RunDir, store: CheckpointStore) -> None:
    store.save(3, {"state": b"new"}, {})
    shutil.copytree(run.checkpoint(3), run.checkpoints / "step-3.old-1")
    begin(run, 2)
    assert (
        names(run) == ["step-3"] and verify_checkpoint(run, 3).file("state").read_bytes() == b"new"
    )


# what is kept -------------------------------------------------------------------------------------


def test_keep_removes_all_others(run: RunDir, store: CheckpointStore) -> None:
    for step in (1, 2, 3, 10):
        store.save(step, {"state": b"abc"}, {})
    store.keep(2, 1)
    assert names(run) == ["step-1", "step-10", "step-3"]


def test_a_damaged_one_does_not_count_as_kept(run: RunDir, store: CheckpointStore) -> None:
    for step in (10, 20, 30):
        store.save(step, {"state": b"abc"}, {})
    (run.checkpoint(30) / "state").write_bytes(b"xyz")
    later = begin(run, 2)
    later.latest()
    later.save(25, {"state": b"abc"}, {})
    later.keep(2)
    assert names(run) == ["damaged-step-30", "step-20", "step-25"]


def test_at_most_one_damaged_one_is_set_aside_and_each_is_named(
    run: RunDir, store: CheckpointStore, capsys: pytest.CaptureFixture[str]
) -> None:
    for step in (20, 30, 40):
        store.save(step, {"state": b"abc"}, {})
    for step in (30, 40):
        (run.checkpoint(step) / "state").write_bytes(b"xyz")
    later = begin(run, 2)
    later.latest()
    later.save(25, {"state": b"abc"}, {})
    later.keep(2)
    assert names(run) == ["damaged-step-40", "step-20", "step-25"]
    told = capsys.readouterr().out
    assert "step-40 is damaged: set aside as damaged-step-40" in told
    assert "removed step-30, which is damaged; damaged-step-40 is kept" in told
    later.save(50, {"state": b"abc"}, {})
    os.truncate(run.checkpoint(50) / "state", 1)
    last = begin(run, 3)
    last.latest()
    last.save(45, {"state": b"abc"}, {})
    last.keep(2)
    assert names(run) == ["damaged-step-50", "step-25", "step-45"]
    told = capsys.readouterr().out
    assert "removed damaged-step-40, because a later checkpoint is damaged" in told


def test_a_damaged_one_is_set_aside_when_its_step_is_written_again(
    run: RunDir, store: CheckpointStore
) -> None:
    for step in (3, 4):
        store.save(step, {"state": b"abc"}, {})
    (run.checkpoint(4) / "state").write_bytes(b"xyz")
    later = begin(run, 2)
    later.latest()
    later.save(4, {"state": b"new"}, {})
    later.keep(2)
    assert names(run) == ["damaged-step-4", "step-3", "step-4"]
    assert verify_checkpoint(run, 4).file("state").read_bytes() == b"new"
    assert (run.checkpoints / "damaged-step-4" / "state").read_bytes() == b"xyz"


def test_a_run_does_not_begin_anew_beside_what_was_set_aside(
    run: RunDir, store: CheckpointStore
) -> None:
    store.save(4, {"state": b"abc"}, {})
    run.checkpoint(4).rename(run.checkpoints / "damaged-step-4")
    with pytest.raises(RampupError, match="is valid, so this attempt can't resume"):
        begin(run, 2).latest()


# failures -----------------------------------------------------------------------------------------


def test_a_full_disk_leaves_the_one_before(
    run: RunDir, store: CheckpointStore, small_files: None
) -> None:
    store.save(1, {"state": b"abc"}, {})
    with pytest.raises(StorageError, match="step-2: File too large"):
        store.save(2, {"state": bytes(10_000)}, {})
    assert names(run) == ["step-1"]
    assert verify_checkpoint(run, 1).step == 1


def as_somebody_else(work: Callable[[], object]) -> str:
    """What the failure says when a user does it who is not root, for whom no permission is ever
    denied."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if os.getuid() == 0:
                os.setuid(65534)
            work()
        except RampupError as error:
            os.write(write, f"{error.message}; {error.hint}".encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(write)
    with open(read, encoding="utf-8") as told:
        return told.read()


@pytest.fixture
def open_to_all(tmp_path: Path) -> None:
    """pytest lets nobody else into its directories."""
    for folder in (tmp_path, *tmp_path.parents):
        folder.chmod(0o755)
        if folder.name.startswith("pytest-of-"):
            return


def test_a_directory_that_one_may_not_write(
    run: RunDir, store: CheckpointStore, open_to_all: None
) -> None:
    store.save(1, {"state": b"abc"}, {})
    run.checkpoints.chmod(0o555)
    told = as_somebody_else(lambda: store.save(2, {"state": b"abc"}, {}))
    assert told.startswith(f"can't write {run.checkpoint(2)}: Permission denied;")
    run.checkpoints.chmod(0o755)
    assert names(run) == ["step-1"] and verify_checkpoint(run, 1).step == 1


@pytest.mark.parametrize("closed", ["", "manifest.json", "state"])
def test_one_that_can_not_be_read_is_not_passed_over(
    run: RunDir,
    store: CheckpointStore,
    open_to_all: None,
    monkeypatch: pytest.MonkeyPatch,
    closed: str,
) -> None:
    """It may be sound: an older one must not take its place, and nothing may be removed."""
    monkeypatch.setattr(checkpoints, "RETRY_AFTER_S", (0.0,))
    for step in (1, 2):
        store.save(step, {"state": b"abc"}, {})
    later = begin(run, 2)
    (run.checkpoint(2) / closed).chmod(0)
    told = as_somebody_else(later.latest)
    assert told.startswith(
        f"can't read {run.checkpoint(2)}: {closed or 'manifest.json'}: Permission"
    )
    assert told.endswith(
        "try again: rampup resume abc123; or continue from an older checkpoint: add --before 2"
    )
    assert names(run) == ["step-1", "step-2"]


def test_a_file_system_that_turns_read_only(small_disk: Path) -> None:
    run = RunDir(small_disk / "run")
    store = begin(run, 1)
    store.save(1, {"state": b"abc"}, {})
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    with pytest.raises(StorageError, match="step-2: Read-only file system"):
        store.save(2, {"state": b"abc"}, {})
    assert verify_checkpoint(run, 1).step == 1


def test_a_writer_that_hides_the_full_disk_is_seen_through(
    store: CheckpointStore, small_files: None
) -> None:
    def hides(file: Any) -> None:
        try:
            file.write(bytes(100_000))
        except OSError:
            raise RuntimeError("unexpected pos 768 vs 662") from None

    with pytest.raises(StorageError, match="File too large"):
        store.save(1, {"state": hides}, {})


def test_a_writer_that_fails_by_itself_is_not_a_full_disk(
    run: RunDir, store: CheckpointStore
) -> None:
    def fails(file: Any) -> None:
        raise ValueError("can't pickle it")

    with pytest.raises(ValueError, match="pickle"):
        store.save(1, {"state": fails}, {})
    assert names(run) == []


def test_a_place_for_temporary_files_on_another_device_plays_no_part(
    run: RunDir, store: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: set[int] = set()
    monkeypatch.setenv("TMPDIR", "/dev/shm")
    before = set(os.listdir("/dev/shm"))

    def looks(file: Any) -> None:
        seen.update(entry.stat().st_dev for entry in os.scandir(run.checkpoints))
        assert set(os.listdir("/dev/shm")) == before
        file.write(b"abc")

    store.save(1, {"state": looks}, {})
    assert seen == {run.path.stat().st_dev} and seen != {os.stat("/dev/shm").st_dev}


# ghosts -------------------------------------------------------------------------------------------


@pytest.fixture
def scene(run: RunDir, store: CheckpointStore) -> tuple[RunDir, CheckpointStore]:
    """A run with two checkpoints of its first attempt, which lives on."""
    for step in (1, 2):
        store.save(step, {"state": b"abc"}, {})
    return run, store


def test_an_older_attempt_writes_no_more(scene: tuple[RunDir, CheckpointStore]) -> None:
    run, ghost = scene
    begin(run, 2)
    with pytest.raises(
        Superseded, match="attempt 2 of this run has begun: attempt 1 stops writing"
    ):
        ghost.save(3, {"state": b"ghost"}, {})
    with pytest.raises(Superseded):
        ghost.keep(1)
    assert names(run) == ["step-1", "step-2"]


def test_a_newer_attempt_begins_while_a_ghost_writes(scene: tuple[RunDir, CheckpointStore]) -> None:
    run, ghost = scene

    def slow(file: Any) -> None:
        file.write(b"gho")
        begin(run, 2)
        file.write(b"st")

    with pytest.raises(Superseded):
        ghost.save(3, {"state": slow, "more": b"x"}, {})
    assert names(run) == ["step-1", "step-2"]


@pytest.mark.parametrize("step", [2, 3])
def test_a_newer_attempt_begins_between_a_ghosts_last_look_and_its_rename(
    scene: tuple[RunDir, CheckpointStore], monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    run, ghost = scene
    show: Callable[..., None] = CheckpointStore._show
    found = []

    def late(self: CheckpointStore, beside: Path, target: Path) -> None:
        found.append(begin(run, 2).latest())
        show(self, beside, target)

    monkeypatch.setattr(CheckpointStore, "_show", late)
    with pytest.raises(Superseded):
        ghost.save(step, {"state": b"ghost"}, {})
    assert found[0] is not None and found[0].step == 2
    assert names(run) == ["step-1", "step-2"]
    assert verify_checkpoint(run, 2).file("state").read_bytes() == b"abc"
