"""Checks of places: the directory of the runs, and data sets in the cache. `doctor` and `preflight`
both read them. Nothing is changed."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rampup.core.finding import Finding, Level
from rampup.datasets import sets
from rampup.errors import Refused

MIN_FREE_MB, GOOD_FREE_MB = 50, 1000
MIN_INODES = 1000
ANOTHER_ROOT = "set RAMPUP_RUNS to a directory that you can write"


class Room(NamedTuple):
    free: int
    inodes: int | None
    """None where the file system does not count them."""


def data_set(name: str, absent: Level) -> Iterator[Finding]:
    """A damaged set is a problem for everyone, an absent one only for who needs it."""
    topic, about = f"data-{name}", f"data set {name}"
    try:
        place = sets.folder(name)
    except Refused as error:
        yield Finding(topic, absent, f"{about}: not here", error.message, error.hint)
        return
    try:
        sets.check_files(name)
        yield Finding(topic, "ok", f"{about}: {place}")
    except Refused as error:
        yield Finding(topic, "problem", f"{about}: damaged", error.message, error.hint)


def runs_root(root: Path) -> Iterator[Finding]:
    """Whether runs can be made in their directory, and how much room there is."""
    yield from runs_root_writable(root)
    yield from runs_root_room(root)


def runs_root_writable(root: Path) -> Iterator[Finding]:
    about = f"runs live in {root}"
    place = existing_parent(root)
    if not place.is_dir():
        why = f"{place} is not a directory"
    elif not os.access(place, os.W_OK | os.X_OK):
        why = f"{place} is not writable"
    else:
        yield Finding("runs-root", "ok", about)
        return
    yield Finding(
        "runs-root", "problem", about, f"can't make a run directory in {root}: {why}", ANOTHER_ROOT
    )


def runs_root_room(root: Path) -> Iterator[Finding]:
    free, inodes = measure_room(root)
    about = f"room for runs: {free / 1e9:.1f} GB" + (
        "" if inodes is None else f", {inodes:,} files"
    )
    remedy = f"make room (df -h, df -i), or {ANOTHER_ROOT}"
    if free < MIN_FREE_MB * 1e6:
        cause = f"only {free / 1e6:.0f} MB are free for runs in {root}, at least {MIN_FREE_MB} are needed"
        yield Finding("runs-room", "problem", about, cause, remedy)
    elif inodes is not None and inodes < MIN_INODES:
        cause = f"only {inodes} files can be made in {root}, at least {MIN_INODES} are needed"
        yield Finding("runs-room", "problem", about, cause, remedy)
    elif free < GOOD_FREE_MB * 1e6:
        yield Finding(
            "runs-room", "note", about, "checkpoints of a large model may not fit", remedy
        )
    else:
        yield Finding("runs-room", "ok", about)


def existing_parent(path: Path) -> Path:
    """The path itself or the nearest directory above it that is there."""
    return next(
        (place for place in (path, *path.parents) if os.path.lexists(place)), Path(path.anchor)
    )


def measure_room(path: Path) -> Room:
    """What is left on the file system where `path` is, or would be made."""
    found = os.statvfs(next(place for place in (path, *path.parents) if place.is_dir()))
    return Room(found.f_bavail * found.f_frsize, found.f_favail if found.f_files else None)
