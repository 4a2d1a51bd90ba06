"""The folder on the node's own disk: safe, shared by the ranks of a run, kept, and removed in time."""

import os
import time
from pathlib import Path

import pytest

from rampup.data.staging.place import KEPT_S, Folder, NotStaged, Place, find_disk

DAY_LATER_S = KEPT_S + 60


def own(root: Path) -> Path:
    return root / f"rampup-{os.geteuid()}"


def test_the_profile_comes_first_then_the_folder_of_the_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("WHO", "ada")
    both = {"SLURM_TMPDIR": "/slurm", "TMPDIR": "/tmp/job"}
    assert find_disk("/local/$WHO", both) == Path("/local/ada")
    assert find_disk("", both) == Path("/slurm")
    assert find_disk("", {"TMPDIR": "/tmp/job"}) == Path("/tmp/job")
    assert find_disk("/local/$NOT_SET_HERE", both) == Path("/slurm")
    with pytest.raises(NotStaged, match="set local_disk in the cluster's profile"):
        find_disk("", {})


def test_everything_is_closed_to_others(tmp_path: Path) -> None:
    place = Place(tmp_path, "run")
    made = place.folder("training")
    for folder in (own(tmp_path), place.path, made.path):
        assert folder.stat().st_mode & 0o777 == 0o700
    made.write("x", b"y")
    assert (made.path / "x").stat().st_mode & 0o777 == 0o600


def test_a_link_in_place_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(0o700)
    own(tmp_path).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(NotStaged, match="can't use"):
        Place(tmp_path, "run")
    own(tmp_path).unlink()
    own(tmp_path).mkdir(0o700)
    (own(tmp_path) / "run").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(NotStaged, match="can't use"):
        Place(tmp_path, "run")
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_file_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    folder = Place(tmp_path, "run").folder("training")
    (tmp_path / "mine").write_text("mine")
    (folder.path / "x").symlink_to(tmp_path / "mine")
    with pytest.raises(OSError, match="Too many levels"):
        folder.open("x", os.O_WRONLY | os.O_CREAT)
    assert folder.read("x") is None


def test_a_folder_that_is_open_to_others_is_refused(tmp_path: Path) -> None:
    own(tmp_path).mkdir(0o755)
    own(tmp_path).chmod(0o755)
    with pytest.raises(NotStaged, match="is open to others: chmod 700"):
        Place(tmp_path, "run")


def test_a_folder_of_another_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own(tmp_path).mkdir(0o700)
    there, me = own(tmp_path), os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: me + 1)
    there.rename(own(tmp_path))
    with pytest.raises(NotStaged, match=f"belongs to the user with the number {me}"):
        Place(tmp_path, "run")


def test_a_root_where_others_can_replace_folders_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(NotStaged, match="others may replace"):
        Place(tmp_path, "run")
    tmp_path.chmod(0o1777)
    Place(tmp_path, "run")


def test_a_disk_that_is_not_there_is_no_failure_of_the_run(tmp_path: Path) -> None:
    with pytest.raises(NotStaged, match="No such file"):
        Place(tmp_path / "absent", "run")


def test_only_one_of_several_gets_a_claim(tmp_path: Path) -> None:
    folder = Place(tmp_path, "run").folder("training")
    again = Folder(folder.path, os.open(folder.path, os.O_RDONLY))
    assert [folder.claim("a"), again.claim("a"), again.claim("b")] == [True, False, True]


# how long it stays --------------------------------------------------------------------------------


def test_it_stays_between_two_attempts(tmp_path: Path) -> None:
    first = Place(tmp_path, "run")
    first.folder("training").write("x", b"y")
    first.leave()
    assert Place(tmp_path, "run").folder("training").read("x") == b"y"


def test_the_last_rank_that_leaves_removes_it_when_the_run_has_ended(tmp_path: Path) -> None:
    one, other = Place(tmp_path, "run"), Place(tmp_path, "run")
    one.mark_ended()
    one.leave()
    assert other.path.exists(), "the other rank still reads"
    other.leave()
    assert not other.path.exists() and own(tmp_path).exists()


def test_leftovers_go_after_a_day_but_never_what_is_in_use(tmp_path: Path) -> None:
    killed, running = Place(tmp_path, "killed"), Place(tmp_path, "running")
    os.close(killed._lock)  # as the kernel does for a process that was killed
    fresh = Place(tmp_path, "fresh")
    fresh.remove_leftovers()
    assert killed.path.exists(), "its next attempt may come back here"
    later = time.time() + DAY_LATER_S
    fresh.remove_leftovers(now=later)
    assert not killed.path.exists()
    assert running.path.exists(), "a run of more than a day"
    assert fresh.path.exists()


def test_what_an_ended_run_left_is_removed_at_once(tmp_path: Path) -> None:
    ended = Place(tmp_path, "ended")
    ended.mark_ended()
    os.close(ended._lock)  # killed before it could leave
    Place(tmp_path, "next").remove_leftovers()
    assert not ended.path.exists()


def test_a_run_that_is_resumed_after_its_end_keeps_its_folder(tmp_path: Path) -> None:
    failed = Place(tmp_path, "run")
    failed.mark_ended()
    os.close(failed._lock)
    resumed = Place(tmp_path, "run")
    resumed.leave()
    assert resumed.path.exists()


def test_leftovers_are_removed_without_following_links(tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "data").write_text("data")
    killed = Place(tmp_path, "killed")
    os.close(killed._lock)
    (killed.path / "link").symlink_to(tmp_path / "precious")
    (own(tmp_path) / "linked").symlink_to(tmp_path / "precious")
    Place(tmp_path, "next").remove_leftovers(now=time.time() + DAY_LATER_S)
    assert not killed.path.exists()
    assert (tmp_path / "precious" / "data").read_text() == "data"
