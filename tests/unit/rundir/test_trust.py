"""Whose run it is: by owner, by mode, and by what the user trusts."""

import os
from pathlib import Path

import pytest

from rampup.errors import Refused
from rampup.rundir import trust
from rampup.rundir.files import RunDir

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
OTHER = 65534


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDir:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    made = RunDir(tmp_path / "runs" / "20261117-010101-nice-abc234")
    made.path.mkdir(parents=True)
    return made


def test_a_run_is_its_owners(run: RunDir) -> None:
    trust.refuse_foreign(run, "clean it")
    assert trust.is_obeyed(run)
    os.chown(run.path, OTHER, OTHER)
    assert not trust.is_obeyed(run)
    with pytest.raises(
        Refused, match=r"abc234 is not yours: it belongs to user .*clean it"
    ) as told:
        trust.refuse_foreign(run, "clean it")
    assert f'trusted_roots = ["{run.path.parent}"]' in told.value.hint


def test_one_that_others_can_write_is_not_obeyed(run: RunDir) -> None:
    run.path.chmod(0o775)
    trust.refuse_foreign(run, "clean it")
    assert not trust.is_obeyed(run)


def test_a_link_of_somebody_else_to_a_run_is_not_ones_own(run: RunDir) -> None:
    link = run.path.with_name("20261117-010102-nice-abc235")
    link.symlink_to(run.path)
    assert trust.owns(link)
    os.lchown(link, OTHER, OTHER)
    assert not trust.owns(link)


def test_trusted_roots_lift_it(run: RunDir) -> None:
    os.chown(run.path, OTHER, OTHER)
    file = trust.config_file()
    file.parent.mkdir(parents=True)
    file.write_text(f'trusted_roots = ["/nowhere", "{run.path.parent}"]\n')
    trust.refuse_foreign(run, "clean it")
    assert trust.is_obeyed(run)
    file.write_text(f'trusted_roots = ["{run.path.parent}/20261117"]\n')
    assert not trust.is_obeyed(run), "a root is a folder, not the beginning of a name"
    for wrong in ("trusted_roots = 1\n", "trusted_roots = [1]\n", "trusted_roots =\n"):
        file.write_text(wrong)
        with pytest.raises(Refused, match=r"trusted_roots|can't read"):
            trust.refuse_foreign(run, "clean it")


def test_a_file_is_guarded_by_all_folders_above_it(tmp_path: Path) -> None:
    file = tmp_path / "a" / "b" / "slurm.conf"
    file.parent.mkdir(parents=True)
    file.write_text("")
    assert trust.is_guarded(file) and not trust.is_guarded(tmp_path / "missing")
    for path in (file, file.parent, file.parent.parent):
        mode = path.stat().st_mode & 0o777
        path.chmod(mode | 0o020)
        assert not trust.is_guarded(file), f"{path} can be written by a group"
        path.chmod(mode)
        os.chown(path, OTHER, OTHER)
        assert not trust.is_guarded(file), f"{path} is somebody else's"
        os.chown(path, 0, 0)
    link = tmp_path / "link"
    link.symlink_to(file.parent)
    os.chown(file, OTHER, OTHER)
    assert not trust.is_guarded(link / "slurm.conf"), "what counts is where it really lies"
