"""The checkpoints of a run, read and verified: directories `checkpoints/step-<n>`, each sealed by a
manifest.

The manifest says what a checkpoint holds and under which conditions it was made. It has the size
and the sha256 sum of every file, and a sum of itself, so that a flipped or lost byte anywhere is
found. A checkpoint that can't be read at the moment is not a damaged one: it is never a reason to
remove anything. The command line, the drill and the job side read checkpoints through this; what
the command line changes is in runs/checkpoints.py, and only runtime/checkpoints/store.py writes
them. What is in the files is the engine's business.
"""

import errno
import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from rampup.errors import RampupError
from rampup.rundir import opening, schema
from rampup.rundir.files import RunDir
from rampup.rundir.records import LARGEST_OBJECT, Record

MANIFEST = "manifest.json"
SEAL = "sha256"
TRASH, REPLACED, UNFINISHED = "trash-", ".old-", ".tmp-"
"""What the name of a directory holds while a checkpoint is removed, replaced or written."""
DAMAGED, SKIPPED = "damaged-", "skipped-"
"""How the name begins of what was set aside: because it is damaged, or by `resume --before`."""
MISSING = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR)
NOT_PLAIN = (errno.ELOOP, errno.EINVAL, errno.EFBIG, errno.ENXIO)
"""A link, a FIFO or a device stands in the place of a file, or one that nobody of us wrote."""
FOREIGN = (*MISSING, *NOT_PLAIN)
"""The errors that say something about a checkpoint; all others are about the storage, the process or
its rights."""
RETRY_AFTER_S = (0.5, 1.0, 2.0)
"""How long to wait before each new try to read what can't be read."""


class Damaged(RampupError):
    """A checkpoint is not as it was written."""

    def __init__(self, folder: Path, fault: str) -> None:
        super().__init__(
            f"checkpoint {folder} is damaged: {fault}", "an older checkpoint may be valid"
        )
        self.fault = fault


class Unreadable(RampupError):
    """A checkpoint can't be read now (an I/O error, no permission, too many open files). Nobody
    knows whether it is sound."""

    def __init__(self, folder: Path, fault: str | None) -> None:
        self.fault = fault or "unknown error"
        super().__init__(f"can't read {folder}: {self.fault}", "try again when the storage answers")


class Kind(Enum):
    """What a name among the checkpoints says."""

    STEP = re.compile(r"step-(0|[1-9]\d*)", re.ASCII)
    UNFINISHED = re.compile(r"step-(0|[1-9]\d*)\.tmp-(\d+)", re.ASCII)
    """It is being written by an attempt, or was when that attempt was killed."""
    REPLACED = re.compile(r"step-(0|[1-9]\d*)\.old-(\d+)", re.ASCII)
    """An attempt has written that step again. It is the only copy if the attempt was killed in
    between."""
    DAMAGED = re.compile(r"damaged-step-(0|[1-9]\d*)", re.ASCII)
    SKIPPED = re.compile(r"skipped-step-(0|[1-9]\d*)(?:\.old-(\d+))?", re.ASCII)
    TRASH = re.compile(r"trash-\d+(?:-.*)?", re.ASCII)


@dataclass(frozen=True)
class Entry:
    """Something among the checkpoints that rampup has put there, as its name tells it."""

    path: Path
    kind: Kind
    step: int = -1
    attempt: int = 0
    """The attempt that was writing it; 0 where the name does not say it."""

    @property
    def name(self) -> str:
        return self.path.name


@dataclass(frozen=True)
class Checkpoint:
    path: Path
    manifest: Record

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def step(self) -> int:
        return int(self.manifest["step"])

    @property
    def meta(self) -> dict[str, Any]:
        """What the engine recorded about it."""
        return dict(self.manifest["meta"])

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(int(file["size"]) for file in self.manifest["files"].values())

    def file(self, name: str) -> Path:
        return self.path / name


# what is there -------------------------------------------------------------------------------------


def list_names(run: RunDir) -> list[str]:
    """Return the names of all that lies among the checkpoints, finished or not. They may lie on
    another disk, behind a link to a folder of the same owner."""
    try:
        if run.checkpoints.is_symlink() and run.checkpoints.stat().st_uid != run.path.stat().st_uid:
            return []
        return os.listdir(run.checkpoints)
    except OSError as error:
        if error.errno in MISSING:
            return []
        raise Unreadable(run.checkpoints, error.strerror) from None


def parse_name(path: Path) -> Entry | None:
    """Return what the name of a file or folder says; None if rampup gives no such names."""
    for kind in Kind:
        found = kind.value.fullmatch(path.name)
        if found:
            return Entry(path, kind, *(int(number or 0) for number in found.groups()))
    return None


def list_entries(run: RunDir) -> list[Entry]:
    """Return all that rampup has put among the checkpoints; names of others are passed over."""
    found = [parse_name(run.checkpoints / name) for name in list_names(run)]
    return [entry for entry in found if entry is not None]


def list_steps(run: RunDir) -> list[int]:
    """Return the steps that have a checkpoint, the newest first, whether or not it is sound."""
    steps = [entry.step for entry in list_entries(run) if entry.kind is Kind.STEP]
    return sorted(steps, reverse=True)


def find_copies(entries: list[Entry]) -> dict[int, Entry]:
    """Return the copy of each step that counts, the newest step first: step-N, or where an attempt
    was killed while it replaced that one, step-N.old-K."""
    copies: dict[int, Entry] = {}
    kinds = (Kind.REPLACED, Kind.STEP)
    for kind in kinds:
        found = [entry for entry in entries if entry.kind is kind]
        for entry in sorted(found, key=lambda entry: entry.attempt):
            copies[entry.step] = entry
    return dict(sorted(copies.items(), reverse=True))


# reading ------------------------------------------------------------------------------------------


def read_checkpoint(run: RunDir, step: int) -> Checkpoint:
    """Return the checkpoint of that step by its manifest alone. Raises Damaged if the manifest is
    not as it was written."""
    return read_copy(run.checkpoint(step), step)


def verify_checkpoint(run: RunDir, step: int) -> Checkpoint:
    """Return the checkpoint of that step, after every file was read and compared with its
    manifest."""
    return verify_copy(run.checkpoint(step), step)


def read_copy(path: Path, step: int) -> Checkpoint:
    """Return a checkpoint that may have another name, as in step-N.old-K, by its manifest alone."""
    return Checkpoint(path, read_manifest(path, step))


def verify_copy(path: Path, step: int) -> Checkpoint:
    """As `verify_checkpoint`, for one that may have another name."""
    found = read_copy(path, step)
    check_files(found.path, found.manifest)
    return found


def retry(read: Callable[[Path, int], Checkpoint], path: Path, step: int) -> Checkpoint:
    """Read a checkpoint, and try again for some seconds while it can't be read: on shared storage
    an error may come and go."""
    for wait_s in RETRY_AFTER_S:
        try:
            return read(path, step)
        except Unreadable:
            time.sleep(wait_s)
    return read(path, step)


# removing -----------------------------------------------------------------------------------------


def name_trash(path: Path) -> Path:
    """Return the name that something gets before it is removed: one rename, and no reader meets half
    of it."""
    return path.with_name(f"{TRASH}{time.time_ns()}-{path.name}")


def delete(path: Path, ignore_errors: bool = False) -> None:
    """Remove a folder, or a plain file or a link in its place; a link is never followed."""
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path, ignore_errors=ignore_errors)
        return
    try:
        path.unlink(missing_ok=True)
    except OSError:
        if not ignore_errors:
            raise


def find_later_damaged(entry: Entry, entries: list[Entry]) -> Entry | None:
    """Return the damaged checkpoint that was set aside before, if it is of a later step than this
    one. At most one is kept, the one with the most steps: what can be saved of it is worth the
    most."""
    later = [each for each in entries if each.kind is Kind.DAMAGED and each.step > entry.step]
    return max(later, key=lambda each: each.step, default=None)


# manifests ----------------------------------------------------------------------------------------


def seal_manifest(facts: Record) -> bytes:
    """Return the file's text: the facts, and last the sum of their own text."""
    return _encode({**facts, SEAL: hashlib.sha256(_encode(facts)).hexdigest()})


def read_manifest(folder: Path, step: int) -> Record:
    """Return the manifest of the checkpoint of that step, if no byte of it has changed."""
    try:
        opening.refuse_link(folder)
        data = opening.read(folder / MANIFEST, most=LARGEST_OBJECT)
    except OSError as error:
        raise _classify(folder, MANIFEST, error) from None
    try:
        found = json.loads(data)
        facts = {key: value for key, value in found.items() if key != SEAL}
    except (ValueError, AttributeError, RecursionError):
        raise Damaged(folder, f"{MANIFEST} can't be read") from None
    if seal_manifest(facts) != data or facts.get("step") != step:
        raise Damaged(folder, f"{MANIFEST} is not what was written")
    if not schema.has_all(
        facts, schema.MANIFEST
    ):  # a sum is not a signature: anybody can write one
        raise Damaged(folder, f"{MANIFEST} holds something foreign")
    return facts


def check_files(folder: Path, manifest: Record) -> None:
    """Read every file to its end and compare it with the manifest."""
    for name, expected in manifest["files"].items():
        try:
            with open(opening.open_file(folder / name), "rb") as file:
                if os.fstat(file.fileno()).st_size != expected["size"]:
                    raise Damaged(folder, f"{name} is not what was written")
                found = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise _classify(folder, name, error) from None
        if found != expected["sha256"]:
            raise Damaged(folder, f"{name} is not what was written")


def _classify(folder: Path, name: str, error: OSError) -> Damaged | Unreadable:
    """Return what an error means: that a file is missing, or that nobody can say."""
    fault = f"{name}: {error.strerror}"
    if error.errno in FOREIGN:
        return Damaged(folder, fault)
    return Unreadable(folder, fault)


def _encode(facts: Record) -> bytes:
    return json.dumps(facts, indent=1).encode() + b"\n"
