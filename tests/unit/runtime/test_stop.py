"""The wish to stop: every way to raise it, on real processes."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

PROGRAM = """
import multiprocessing, os, signal, sys, time
from rampup.runtime.context import read_context
from rampup.runtime.stop import open_stop_flag

signal.signal(signal.SIGUSR2, signal.SIG_IGN)  # as rank.py leaves it
stop = open_stop_flag(read_context())
{before}
stop.arm()
print("ready", flush=True)
for _ in range(1500):
    if stop.reason:
        print("asked", stop.reason, flush=True)
        stop.acknowledge(7)
        break
    time.sleep(0.01)
{after}
"""


@pytest.fixture
def attempt(tmp_path: Path) -> Path:
    path = tmp_path / "attempts" / "1"
    path.mkdir(parents=True)
    return path


class Rank:
    """A process that looks at its flag; its whole group can be signalled, as Slurm signals a
    step."""

    def __init__(self, attempt: Path, before: str = "", after: str = "", **env: str) -> None:
        facts = {
            "RAMPUP_RUN_DIR": str(attempt.parent.parent),
            "RAMPUP_ATTEMPT": attempt.name,
            **env,
        }
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM.format(before=before, after=after)],
            env={**os.environ, **facts},
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"

    def said(self) -> list[str]:
        return self.process.communicate(timeout=45)[0].split("\n")[:-1]

    def signal_all(self, number: int) -> None:
        os.killpg(self.process.pid, number)


@pytest.fixture(autouse=True)
def no_processes_left() -> Iterator[None]:
    before = children()
    yield
    assert children() <= before


def children() -> set[str]:
    return {
        pid
        for path in Path("/proc/self/task").glob("*/children")
        for pid in path.read_text().split()
    }


def test_a_signal_only_sets_the_flag_and_rank_0_leaves_word(attempt: Path) -> None:
    for number, word in ((signal.SIGTERM, "preempt"), (signal.SIGUSR2, "timeout")):
        rank = Rank(attempt)
        rank.signal_all(number)
        assert rank.said() == [f"asked {word}"]
        assert rank.process.returncode == 0
        assert (attempt / "again").read_text() == f"{word}\n"


def test_the_other_ranks_leave_no_word(attempt: Path) -> None:
    rank = Rank(attempt, RANK="1", WORLD_SIZE="2")
    rank.signal_all(signal.SIGTERM)
    assert rank.said() == ["asked preempt"]
    assert not (attempt / "again").exists()


def test_the_clock_stops_before_the_limit(attempt: Path) -> None:
    rank = Rank(attempt, RAMPUP_STOP_AT=str(time.time() + 1.5))
    assert rank.said() == ["asked timeout"]


def test_cancel_with_save_is_a_file(attempt: Path) -> None:
    rank = Rank(attempt)
    (attempt / "stop").touch()
    assert rank.said() == ["asked stop"]
    assert (attempt / "again").read_text() == "stop\n"


def test_a_newer_attempt_takes_the_run_away_and_the_ghost_leaves_no_word(attempt: Path) -> None:
    rank = Rank(attempt)
    attempt.with_name("2").mkdir()
    assert rank.said() == ["asked superseded"]
    assert not (attempt / "again").exists()


def test_before_the_loop_listens_term_ends_at_once(attempt: Path) -> None:
    program = PROGRAM.format(
        before='print("early", flush=True)\nwhile True: time.sleep(0.1)', after=""
    )
    facts = {"RAMPUP_RUN_DIR": str(attempt.parent.parent), "RAMPUP_ATTEMPT": "1"}
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        env={**os.environ, **facts},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stdout.readline() == "early\n"
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=45)
    assert process.returncode == 128 + signal.SIGTERM


WORKER = """
context = multiprocessing.get_context("{method}")
worker = context.Process(target=time.sleep, args=(60,))
worker.start()
time.sleep({after_s})
"""
SURVIVES = """
time.sleep(0.3)
print("worker lives" if worker.is_alive() else f"worker died: {worker.exitcode}", flush=True)
worker.terminate()
worker.join(5)
if worker.is_alive():
    worker.kill()
"""


def test_a_forked_worker_outlives_a_signal_to_all(attempt: Path) -> None:
    for number in (signal.SIGTERM, signal.SIGUSR2):
        rank = Rank(attempt, before=WORKER.format(method="fork", after_s=0), after=SURVIVES)
        rank.signal_all(number)
        assert rank.said()[1:] == ["worker lives"], number


def test_a_spawned_worker_outlives_slurms_warning(attempt: Path) -> None:
    rank = Rank(attempt, before=WORKER.format(method="spawn", after_s=1.0), after=SURVIVES)
    rank.signal_all(signal.SIGUSR2)
    assert rank.said() == ["asked timeout", "worker lives"]


def test_a_worker_can_still_be_terminated_alone(attempt: Path) -> None:
    """As a pool of processes does it: whoever ignores SIGTERM would leave it hanging."""
    alone = "worker.terminate(); worker.join(5); print(worker.exitcode, flush=True); stop.request('stop')"
    program = PROGRAM.format(before=WORKER.format(method="fork", after_s=0.2) + alone, after="")
    facts = {"RAMPUP_RUN_DIR": str(attempt.parent.parent), "RAMPUP_ATTEMPT": "1"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **facts},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.stdout.split("\n")[0] == str(-signal.SIGTERM), done.stderr


def test_outside_rampup_nobody_asks() -> None:
    from rampup.runtime.context import RankContext
    from rampup.runtime.stop import open_stop_flag

    before = signal.getsignal(signal.SIGTERM)
    assert open_stop_flag(RankContext()).reason == ""
    assert signal.getsignal(signal.SIGTERM) == before


def test_ranks_that_nothing_joins_stop_after_rank_0(attempt: Path) -> None:
    """Only rank 0 reads the file `stop`: without it the others would run for ever."""
    rank = Rank(attempt, RANK="1", WORLD_SIZE="2")
    (attempt / "again").write_text("stop\n")
    assert rank.said() == ["asked stop"]
    assert (attempt / "again").read_text() == "stop\n"


def test_a_program_that_asks_to_be_started_again_stops_no_other_rank(attempt: Path) -> None:
    rank = Rank(attempt, RANK="1", WORLD_SIZE="2", before="time.sleep(0)")
    (attempt / "again").write_text("asked\n")
    time.sleep(2.5)
    rank.signal_all(signal.SIGTERM)
    assert rank.said() == ["asked preempt"]
