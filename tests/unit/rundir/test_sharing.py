"""Who may read a run: what was asked for is its owner's, results are the group's, or as the profile
says; and nobody gets in between."""

import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from rampup.core.spec import Share
from rampup.rundir import files, records
from rampup.rundir.files import RunDir

PRIVATE = ("config.json", "env.json", "control.jsonl", "job.sh", "rampup.toml")


@pytest.fixture(params=[0o022, 0o077, 0o002])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """One that other users can reach, unlike those of pytest."""
    with tempfile.TemporaryDirectory() as made:
        Path(made).chmod(0o711)
        yield Path(made)


def make(root: Path, share: Share) -> RunDir:
    path = root / f"20260101-000000-test-{share.ljust(6, 'a')[:6]}"
    settings = root / "mine.toml"
    settings.write_text("[train]\n")
    with files.create_run(path, {"id": "x"}, share=share) as made:
        files.fill_run(
            made, {}, {}, files.__file__, files.__file__, "#!/bin/bash\n", str(settings), share
        )
    return RunDir(path)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize(
    ("share", "folder", "private"),
    [
        ("none", {0o700}, {0o600}),
        ("results", {0o750, 0o700}, {0o600}),
        ("group", {0o750, 0o770}, {0o640, 0o660}),
        ("all", {0o755, 0o775}, {0o644, 0o664}),
    ],
)
def test_a_run_has_the_modes_that_its_profile_asks_for(
    tmp_path: Path, umask: int, share: Share, folder: set[int], private: set[int]
) -> None:
    run = make(tmp_path, share)
    assert mode_of(run.path) in folder
    assert {mode_of(run.path / name) for name in PRIVATE} <= private
    assert mode_of(run.key_file) == 0o600, "the ranks' key is nobody else's in any case"
    if umask == 0o002 and share == "group":
        assert mode_of(run.path) == 0o770, "who may write into such folders may go on to do so"


def test_a_folder_of_a_project_hands_its_group_down(tmp_path: Path) -> None:
    root = tmp_path / "project"
    root.mkdir()
    root.chmod(0o2775)
    for share in ("results", "group", "all"):
        assert make(root, share).path.stat().st_mode & stat.S_ISGID  # type: ignore[arg-type]


def test_what_is_written_anew_stays_private(tmp_path: Path) -> None:
    run = make(tmp_path, "results")
    records.write_json(run.config_file, {"train": {}})
    records.write_text(run.job_script, "#!/bin/bash\ntrue\n")
    run.record("submitted", job="7")
    assert {mode_of(run.path / name) for name in PRIVATE} == {0o600}
    shared = make(tmp_path, "group")
    records.write_json(shared.config_file, {"train": {}})
    assert mode_of(shared.config_file) & 0o040


def test_a_record_of_a_run_without_one_is_private(tmp_path: Path) -> None:
    """Such as a run of an older version, which had no such file before it was submitted."""
    run = RunDir(tmp_path)
    run.record("submitted", job="7")
    assert mode_of(run.control_file) == 0o600


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
def test_others_of_the_group_see_results_and_no_settings(open_folder: Path) -> None:
    run, shared = make(open_folder, "results"), make(open_folder, "group")
    for one in (run, shared):
        for path in (one.path, *one.path.rglob("*")):
            os.chown(path, 0, 4242)
    reader = os.fork()
    if reader == 0:
        os.setgroups([])
        os.setgid(4242)
        os.setuid(4242)
        seen = [RunDir(one.path).run.get("id") for one in (run, shared)]
        can = [os.access(one.config_file, os.R_OK) for one in (run, shared)]
        key = [os.access(one.key_file, os.R_OK) for one in (run, shared)]
        right = (seen, can, key) == (["x", "x"], [False, True], [False, False])
        os._exit(0 if right else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(reader, 0)[1]) == 0
