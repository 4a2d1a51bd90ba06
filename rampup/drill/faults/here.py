"""Faults of processes and files: kill -9, a stop on request, a damaged checkpoint, a full disk.

Each fault is a function of a FaultRun whose run has been started, or a context around all of it.
They work on local runs, and most of them in a sandbox too, because its ranks are processes of this
machine. The catalogue names them.
"""

import contextlib
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from msgspec.structs import replace

from rampup.drill import run_processes
from rampup.drill.fault_run import FaultRun, Impossible, Lost, TooLate
from rampup.rundir import checkpoints
from rampup.runs import stop
from rampup.schedulers.slurm.sbatch_options import clock

Found = TypeVar("Found")
SAVE_WITHIN_S = 120.0
SPARE_BYTES = 128 << 20
"""Space on the small disk beside twice what the undisturbed run needed; a run is not started with
less than 50 MB."""
BLOCK = bytes(1 << 20)


# kills --------------------------------------------------------------------------------------------


def kill_one_rank(fault_run: FaultRun) -> None:
    fault_run.wait_for_moment()
    ranks = _wait_until_found(fault_run, lambda: run_processes.find_ranks(fault_run.run, 1))
    run_processes.kill(ranks[fault_run.rng.choice(sorted(ranks))])
    fault_run.record_in_save()


def kill_all_ranks(fault_run: FaultRun) -> None:
    fault_run.wait_for_moment()
    ranks = _wait_until_found(fault_run, lambda: run_processes.find_ranks(fault_run.run, 1))
    run_processes.kill(set().union(*ranks.values()))
    fault_run.record_in_save()


def kill_launcher(fault_run: FaultRun) -> None:
    fault_run.wait_for_moment()
    launchers = _wait_until_found(fault_run, lambda: run_processes.find_launchers(fault_run.run))
    run_processes.kill(launchers)
    fault_run.record_in_save()


def _wait_until_found(fault_run: FaultRun, find: Callable[[], Found]) -> Found:
    """Wait until there is a process to kill: the moment may come before the first one starts."""
    found: list[Found] = []

    def look() -> Found:
        found[:] = [find()]
        return found[0]

    fault_run.wait(look, "there is a process to kill")
    return found[0]


# requests -----------------------------------------------------------------------------------------


def stop_and_save(fault_run: FaultRun) -> None:
    """Ask the run to save and stop, as `rampup cancel --save` does."""
    fault_run.wait_for_training()
    stop.ask_to_stop(fault_run.run)
    fault_run.wait(
        lambda: fault_run.state().ended,
        "it stops when it is asked to",
        may_end=True,
        within_s=SAVE_WITHIN_S,
    )
    if fault_run.state().name == "completed":
        raise TooLate


def cancel(fault_run: FaultRun) -> None:
    """Cancel the run in its training, as `rampup cancel` does; a Slurm job ends by scancel."""
    fault_run.wait_for_training()
    _cancel(fault_run)


def _cancel(fault_run: FaultRun) -> None:
    stop.cancel(fault_run.run)
    if fault_run.wait_for_end().name == "completed":
        raise TooLate


@contextlib.contextmanager
def set_short_time_limit(fault_run: FaultRun) -> Iterator[None]:
    """Give the run a limit that ends within its training; a local launcher counts in seconds."""
    baseline = fault_run.baseline
    startup_s = baseline.wall_s - baseline.train_s
    due_s = startup_s + fault_run.moment * baseline.train_s
    limit = clock(max(1, round(fault_run.time_scale * due_s)))
    asked = fault_run.spec.resources
    fault_run.spec = replace(fault_run.spec, resources=replace(asked, time=limit))
    fault_run.resume_options = {"time": "1-00:00:00"}
    yield


def wait_for_time_limit(fault_run: FaultRun) -> None:
    fault_run.wait(lambda: fault_run.state().ended, "the time limit", may_end=True)
    if fault_run.state().name == "completed":
        raise TooLate


# files --------------------------------------------------------------------------------------------


def tear_checkpoint(fault_run: FaultRun) -> None:
    """End the run, then cut the newest checkpoint or flip one bit of it."""
    fault_run.wait_for_training()
    fault_run.wait(lambda: len(checkpoints.list_steps(fault_run.run)) >= 2, "two checkpoints")
    _cancel(fault_run)
    newest = fault_run.run.checkpoint(checkpoints.list_steps(fault_run.run)[0])
    rng = fault_run.rng
    file = rng.choice(sorted(path for path in newest.iterdir() if path.stat().st_size))
    damage(file, rng.randrange(file.stat().st_size), cut=rng.random() < 0.5)


def damage(file: Path, offset: int, cut: bool) -> None:
    """Cut a file at an offset, or flip one bit there."""
    if cut:
        os.truncate(file, offset)
        return
    with open(file, "r+b") as opened:
        opened.seek(offset)
        byte = opened.read(1)[0]
        opened.seek(offset)
        opened.write(bytes([byte ^ 1]))


@contextlib.contextmanager
def small_disk(fault_run: FaultRun) -> Iterator[None]:
    """Mount a small disk in memory, for this run alone."""
    folder = fault_run.runner.root / "small-disk"
    folder.mkdir(exist_ok=True)
    files = [path for path in fault_run.baseline.run.path.rglob("*") if path.is_file()]
    used = sum(path.stat().st_size for path in files)
    size = f"size={2 * used + SPARE_BYTES}"
    argv = ["mount", "-t", "tmpfs", "-o", size, "rampup-drill", str(folder)]
    done = subprocess.run(argv, capture_output=True, text=True)
    if done.returncode != 0:
        raise Impossible(f"can't mount a small disk: {done.stderr.strip()}")
    fault_run.root = folder
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill_disk(fault_run: FaultRun) -> None:
    """Fill the disk until the run has failed because of it, then free the space again."""
    fault_run.wait_for_training()
    filler = fault_run.run.path.parent / "filler"
    try:
        with contextlib.suppress(OSError), open(filler, "ab") as file:
            while True:
                file.write(BLOCK)
                file.flush()
        fault_run.wait(lambda: fault_run.state().ended, "it ends on a full disk", may_end=True)
    finally:
        filler.unlink()
    state = fault_run.state()
    if state.name == "completed":
        raise TooLate
    if state.name != "failed":
        raise Lost(f"on a full disk it is {state.name}, not failed")
