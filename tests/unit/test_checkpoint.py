"""Checkpoints are whole or not there, and a damaged one is found."""

import json
import os
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rampup.errors import RampupError
from rampup.rundir import RunDir
from rampup.runtime.checkpoint import CheckpointStore
from rampup.runtime.storage import StorageError


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return RunDir(tmp_path)


@pytest.fixture
def store(run: RunDir) -> CheckpointStore:
    return CheckpointStore(run, 1)


@pytest.fixture
def small_files() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5000, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def names(run: RunDir) -> list[str]:
    return sorted(path.name for path in run.checkpoints.iterdir())


def test_what_is_saved_is_loaded(run: RunDir, store: CheckpointStore) -> None:
    saved = store.save(7, {"state": lambda file: file.write(b"abc"), "note": b"x"}, {"world_size": 2})
    assert saved.name == "step-7" and names(run) == ["step-7"]
    loaded = store.load(7)
    assert loaded.file("state").read_bytes() == b"abc" and loaded.meta == {"world_size": 2}
    manifest = json.loads((loaded.path / "manifest.json").read_text())
    assert manifest["files"]["state"]["size"] == 3
    assert manifest["files"]["note"]["sha256"].startswith("2d711642b726b044")


def test_the_latest_is_the_newest_sound_one(
    run: RunDir, store: CheckpointStore, capsys: pytest.CaptureFixture[str]
) -> None:
    assert store.latest() is None
    for step in (5, 10, 20, 100):
        store.save(step, {"state": b"0123456789"}, {})
    (run.checkpoint(100) / "state").write_bytes(b"0123456780")
    os.truncate(run.checkpoint(20) / "state", 3)
    (run.checkpoints / "step-200.tmp-1").mkdir()
    latest = store.latest()
    assert latest is not None and latest.step == 10
    assert capsys.readouterr().out.count("is damaged: state is not what was written; trying the one before") == 2


@pytest.mark.parametrize("broken", ["manifest.json", "state"])
def test_a_missing_file_is_named(run: RunDir, store: CheckpointStore, broken: str) -> None:
    store.save(1, {"state": b"abc"}, {})
    (run.checkpoint(1) / broken).unlink()
    with pytest.raises(RampupError, match="manifest" if broken == "manifest.json" else "state: No such file"):
        store.load(1)


def test_the_same_step_again_replaces_it(run: RunDir, store: CheckpointStore) -> None:
    store.save(3, {"state": b"old"}, {})
    CheckpointStore(run, 2).save(3, {"state": b"new"}, {})
    assert store.load(3).file("state").read_bytes() == b"new"
    assert names(run) == ["step-3"]


def test_keep_removes_all_others(run: RunDir, store: CheckpointStore) -> None:
    for step in (1, 2, 3, 4):
        store.save(step, {"state": b"abc"}, {})
    (run.checkpoints / "step-9.tmp-1").mkdir()
    store.keep([2, 4])
    assert names(run) == ["step-2", "step-4"]


def test_a_full_disk_leaves_the_one_before(run: RunDir, store: CheckpointStore, small_files: None) -> None:
    store.save(1, {"state": b"abc"}, {})
    with pytest.raises(StorageError, match="step-2: File too large"):
        store.save(2, {"state": bytes(10_000)}, {})
    assert names(run) == ["step-1"]
    latest = store.latest()
    assert latest is not None and latest.step == 1


def test_a_writer_that_hides_the_full_disk_is_seen_through(store: CheckpointStore, small_files: None) -> None:
    def hides(file: Any) -> None:
        try:
            file.write(bytes(100_000))
        except OSError:
            raise RuntimeError("unexpected pos 768 vs 662") from None

    with pytest.raises(StorageError, match="File too large"):
        store.save(1, {"state": hides}, {})


def test_a_writer_that_fails_by_itself_is_not_a_full_disk(run: RunDir, store: CheckpointStore) -> None:
    def fails(file: Any) -> None:
        raise ValueError("can't pickle it")

    with pytest.raises(ValueError, match="pickle"):
        store.save(1, {"state": fails}, {})
    assert names(run) == []
