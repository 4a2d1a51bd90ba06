"""The right to start a run: one process gets it, and one that died does not keep it."""

import errno
import multiprocessing
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rampup.core import processes
from rampup.errors import Refused
from rampup.rundir import claims, records
from rampup.rundir import files as rundir
from rampup.rundir.files import RunDir
from rampup.schedulers.held_start import Gate


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    made = RunDir(tmp_path / "20260101-000000-it-abc234")
    with rundir.create_run(made.path, {"id": "abc234"}) as hidden:
        claims.claim_first(hidden)
    return made


def gone() -> dict[str, object]:
    """A process of this host that has ended."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    found = processes.identify(process.pid)
    process.communicate(b"\n")
    return found


def try_claim(path: Path, number: int, go: float) -> bool:
    time.sleep(max(0.0, go - time.time()))
    try:
        claims.claim(RunDir(path), number)
    except Refused:
        return False
    return True


def test_of_many_one_gets_the_number(run: RunDir) -> None:
    with multiprocessing.get_context("fork").Pool(6) as pool:
        for number in range(2, 30):
            go = time.time() + 0.01
            got = pool.starmap(try_claim, [(run.path, number, go)] * 6)
            assert sum(got) == 1, number
    assert claims.newest_claim(run)[0] == 29


def test_a_file_system_without_links(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*names: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    claims.claim(run, 2)
    with pytest.raises(Refused, match="is being started by another process"):
        claims.claim(run, 2)
    assert claims.newest_claim(run)[1]["pid"] == os.getpid()


def test_who_has_a_claim_is_starting_the_run_until_it_says_how_that_ended(run: RunDir) -> None:
    assert claims.is_being_started(run)
    run.record("not submitted", number=1, why="no")
    assert not claims.is_being_started(run)
    claims.claim(run, 2)
    assert claims.is_being_started(run)
    run.record("submitted", scheduler="slurm", number=2, job="7")
    assert not claims.is_being_started(run)


def test_a_start_in_progress_is_seen_after_a_clock_was_ahead(run: RunDir) -> None:
    records.append_json(
        run.control_file, {"t": time.time() + 3600, "what": "submitted", "number": 1, "job": "7"}
    )
    assert not claims.is_being_started(run)
    claims.claim(run, 2)
    assert claims.is_being_started(run)


def test_the_room_that_a_killed_process_kept_is_freed(run: RunDir) -> None:
    left = run.submissions / ".room-0123abcd"
    left.write_bytes(bytes(4096))
    with claims.reserved_room(run):
        assert not left.exists()
        (room,) = run.submissions.glob(".room-*")
        assert room.stat().st_size >= claims.ROOM_BYTES
    assert [path.name for path in run.submissions.iterdir()] == ["1.json"]


def test_the_claim_of_a_dead_process_does_not_count(run: RunDir) -> None:
    records.write_json(claims.claim_file(run, 2), {"t": time.time(), **gone()})
    assert not claims.is_being_started(run)


def test_a_process_of_another_host_counts_for_some_minutes(run: RunDir) -> None:
    other = {**gone(), "host": "elsewhere"}
    records.write_json(claims.claim_file(run, 2), {"t": time.time(), **other})
    assert claims.is_being_started(run)
    past = time.time() - 2 * claims.ABSENT_S
    records.write_json(claims.claim_file(run, 3), {"t": past, **other})
    os.utime(claims.claim_file(run, 3), (past, past))
    assert not claims.is_being_started(run)


def test_the_program_outlives_its_caller(run: RunDir) -> None:
    """sbatch may still be on its way when the process that called it is gone."""
    gate = Gate(["sleep", "30"], dict(os.environ))
    asked = {"number": 1, "job_name": "it-abc234", **gone(), "program": gate.identify()}
    run.record("submitting", **asked)
    gate.open()
    row = claims.find_open(run.control())
    assert row is not None and claims.is_in_progress(row, run.control_file)
    gate.kill()
    assert not claims.is_in_progress(row, run.control_file)
    claims.record_submitted(run, row, "7")
    assert claims.find_open(run.control()) is None
    assert (run.recorded("submitted") or {})["job"] == "7"


def test_a_program_whose_caller_dies_first_is_never_started(tmp_path: Path) -> None:
    proof = tmp_path / "started"
    code = f"""
import os
from rampup.schedulers.held_start import Gate
gate = Gate(["touch", {str(proof)!r}], dict(os.environ))
print(gate.process.pid, flush=True)
os.kill(os.getpid(), 9)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    pid, deadline = int(done.stdout), time.monotonic() + 10
    while processes.start_ticks(pid) is not None and time.monotonic() < deadline:
        time.sleep(0.02)
    assert processes.start_ticks(pid) is None and not proof.exists()


def test_a_torn_line_does_not_take_the_next_one_with_it(run: RunDir) -> None:
    run.control_file.write_text('{"what": "submitting", "job_na')
    run.record("submitted", job="7", durable=True)
    assert (run.recorded("submitted") or {})["job"] == "7"


@pytest.mark.parametrize(
    ("number", "hint"),
    [
        (errno.ENOSPC, "df -h"),
        (errno.EDQUOT, "df -h"),
        (errno.EACCES, "owner"),
        (errno.EROFS, "read-only"),
    ],
)
def test_what_can_not_be_written_has_its_remedy(
    run: RunDir, monkeypatch: pytest.MonkeyPatch, number: int, hint: str
) -> None:
    def refuse(*words: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(records, "write_new", refuse)
    with pytest.raises(Refused) as found:
        claims.claim(run, 2)
    assert hint in found.value.hint
