"""Faults of processes and files: kill -9, a stop on request, a damaged checkpoint, a full disk.

Each is a function of a scene whose run has been started, or a context around all of it. They work
on local runs; most of them on a sandbox too, whose ranks are processes of this machine.
"""

import contextlib
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from msgspec.structs import replace

from rampup.drill import victims
from rampup.drill.scene import Impossible, Lost, Scene, TooLate
from rampup.rundir import checkpoints
from rampup.runs import create as submit
from rampup.schedulers.slurm.options import clock

Found = TypeVar("Found")
SAVE_WITHIN_S = 120.0
ROOM_BYTES = 128 << 20
"""On the small disk, beside twice what the undisturbed run needed; below 50 MB no run is
started."""
BLOCK = bytes(1 << 20)


# kills --------------------------------------------------------------------------------------------


def kill_one_rank(scene: Scene) -> None:
    scene.wait_for_moment()
    ranks = _wait_for(scene, lambda: victims.ranks_of(scene.run, 1))
    victims.kill(ranks[scene.chance.choice(sorted(ranks))])
    scene.note_saving()


def kill_all_ranks(scene: Scene) -> None:
    scene.wait_for_moment()
    ranks = _wait_for(scene, lambda: victims.ranks_of(scene.run, 1))
    victims.kill(set().union(*ranks.values()))
    scene.note_saving()


def kill_launcher(scene: Scene) -> None:
    scene.wait_for_moment()
    victims.kill(_wait_for(scene, lambda: victims.launchers_of(scene.run)))
    scene.note_saving()


def _wait_for(scene: Scene, find: Callable[[], Found]) -> Found:
    """The victims; when the moment is earlier than they are, as soon as there are any."""
    found: list[Found] = []

    def look() -> Found:
        found[:] = [find()]
        return found[0]

    scene.wait(look, "there is somebody to kill")
    return found[0]


# in good order ------------------------------------------------------------------------------------


def stop_and_save(scene: Scene) -> None:
    """As `rampup cancel --save`."""
    scene.wait_for_training()
    submit.ask_to_stop(scene.run)
    scene.wait(
        lambda: scene.state().ended,
        "it stops when it is asked to",
        may_end=True,
        within_s=SAVE_WITHIN_S,
    )
    if scene.state().name == "completed":
        raise TooLate


def cancel(scene: Scene) -> None:
    """As `rampup cancel`; a Slurm job ends by scancel."""
    scene.wait_for_training()
    _cancel(scene)


def _cancel(scene: Scene) -> None:
    submit.cancel(scene.run)
    if scene.wait_for_end().name == "completed":
        raise TooLate


@contextlib.contextmanager
def short_time_limit(scene: Scene) -> Iterator[None]:
    """The launcher of this machine counts seconds."""
    start_s = scene.whole.wall_s - scene.whole.train_s
    limit_s = max(1, round(scene.haste * (start_s + scene.moment * scene.whole.train_s)))
    scene.spec = replace(scene.spec, resources=replace(scene.spec.resources, time=clock(limit_s)))
    scene.resume_with = {"time": "1-00:00:00"}
    yield


def wait_for_time_limit(scene: Scene) -> None:
    scene.wait(lambda: scene.state().ended, "the time limit", may_end=True)
    if scene.state().name == "completed":
        raise TooLate


# files --------------------------------------------------------------------------------------------


def tear_checkpoint(scene: Scene) -> None:
    """End the run, then cut the newest checkpoint or turn one bit of it."""
    scene.wait_for_training()
    scene.wait(lambda: len(checkpoints.list_steps(scene.run)) >= 2, "two checkpoints")
    _cancel(scene)
    newest = scene.run.checkpoint(checkpoints.list_steps(scene.run)[0])
    file = scene.chance.choice(sorted(path for path in newest.iterdir() if path.stat().st_size))
    damage(file, scene.chance.randrange(file.stat().st_size), cut=scene.chance.random() < 0.5)


def damage(file: Path, at: int, cut: bool) -> None:
    if cut:
        os.truncate(file, at)
        return
    with open(file, "r+b") as opened:
        opened.seek(at)
        byte = opened.read(1)[0]
        opened.seek(at)
        opened.write(bytes([byte ^ 1]))


@contextlib.contextmanager
def small_disk(scene: Scene) -> Iterator[None]:
    """A disk of its own in memory, for the run alone."""
    folder = scene.stage.root / "small-disk"
    folder.mkdir(exist_ok=True)
    used = sum(path.stat().st_size for path in scene.whole.run.path.rglob("*") if path.is_file())
    size = f"size={2 * used + ROOM_BYTES}"
    argv = ["mount", "-t", "tmpfs", "-o", size, "rampup-drill", str(folder)]
    done = subprocess.run(argv, capture_output=True, text=True)
    if done.returncode != 0:
        raise Impossible(f"can't mount a small disk: {done.stderr.strip()}")
    scene.root = folder
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill_disk(scene: Scene) -> None:
    """Until the run has failed of it; then there is room again."""
    scene.wait_for_training()
    filler = scene.run.path.parent / "filler"
    try:
        with contextlib.suppress(OSError), open(filler, "ab") as file:
            while True:
                file.write(BLOCK)
                file.flush()
        scene.wait(lambda: scene.state().ended, "it ends on a full disk", may_end=True)
    finally:
        filler.unlink()
    state = scene.state()
    if state.name == "completed":
        raise TooLate
    if state.name != "failed":
        raise Lost(f"on a full disk it is {state.name}, not failed")
