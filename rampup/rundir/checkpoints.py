"""The checkpoints of a run, read and verified: directories `checkpoints/step-<n>`, each sealed by a
manifest.

The manifest says what a checkpoint holds and under which conditions it was made. It has the size
and the sha256 sum of every file, and a sum of itself, so that a flipped or lost byte anywhere is
found. The command line, the drill and the job side read checkpoints through this; only
runtime/checkpoints/store.py writes them. What is in the files is the engine's business.
"""

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rampup.errors import RampupError
from rampup.rundir.files import RunDir, checkpoint_name
from rampup.rundir.records import Record

MANIFEST = "manifest.json"
SEAL = "sha256"
TRASH, REPLACED, UNFINISHED = "trash-", ".old-", ".tmp-"
"""What the name of a directory holds while a checkpoint is removed, replaced or written."""


class Damaged(RampupError):
    """A checkpoint is not as it was written."""

    def __init__(self, folder: Path, fault: str) -> None:
        super().__init__(
            f"checkpoint {folder} is damaged: {fault}", "an older checkpoint may be sound"
        )
        self.fault = fault


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


def list_names(run: RunDir) -> list[str]:
    """Return the names of all that lies among the checkpoints, finished or not."""
    try:
        return os.listdir(run.checkpoints)
    except FileNotFoundError:
        return []


def list_steps(run: RunDir) -> list[int]:
    """Return the steps that have a checkpoint, the newest first, whether or not it is sound."""
    found = [name.removeprefix("step-") for name in list_names(run) if name.startswith("step-")]
    return sorted((int(step) for step in found if step.isdigit()), reverse=True)


def list_half_written(run: RunDir) -> list[Path]:
    """Return what is left of attempts that ended while they wrote, replaced or removed a
    checkpoint."""
    names = list_names(run)
    found = []
    for name in names:
        step, replaced, _ = name.partition(REPLACED)
        if replaced and step in names:
            found.append(name)
    found += [name for name in names if name.startswith(TRASH) or UNFINISHED in name]
    return [run.checkpoints / name for name in found]


def read_checkpoint(run: RunDir, step: int) -> Checkpoint:
    """Return the checkpoint of that step by its manifest alone. Raises Damaged if the manifest is
    not as it was written."""
    path = run.checkpoint(step)
    return Checkpoint(path, read_manifest(path))


def verify_checkpoint(run: RunDir, step: int) -> Checkpoint:
    """Return the checkpoint of that step, after every file was read and compared with its
    manifest."""
    found = read_checkpoint(run, step)
    check_files(found.path, found.manifest)
    return found


# manifests ----------------------------------------------------------------------------------------


def seal_manifest(facts: Record) -> bytes:
    """Return the file's text: the facts, and last the sum of their own text."""
    return _encode({**facts, SEAL: hashlib.sha256(_encode(facts)).hexdigest()})


def read_manifest(folder: Path) -> Record:
    """Return the manifest of a checkpoint, if no byte of it has changed."""
    try:
        data = (folder / MANIFEST).read_bytes()
    except OSError as error:
        raise Damaged(folder, f"{MANIFEST}: {error.strerror}") from None
    try:
        found = json.loads(data)
        facts = {key: value for key, value in found.items() if key != SEAL}
    except (ValueError, AttributeError, RecursionError):
        raise Damaged(folder, f"{MANIFEST} can't be read") from None
    if seal_manifest(facts) != data or folder.name != checkpoint_name(facts.get("step", -1)):
        raise Damaged(folder, f"{MANIFEST} is not what was written")
    return facts


def check_files(folder: Path, manifest: Record) -> None:
    """Read every file to its end and compare it with the manifest."""
    for name, expected in manifest["files"].items():
        try:
            with open(folder / name, "rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise Damaged(folder, f"{name}: {error.strerror}") from None
        if found != expected["sha256"]:
            raise Damaged(folder, f"{name} is not what was written")


def _encode(facts: Record) -> bytes:
    return json.dumps(facts, indent=1).encode() + b"\n"
