"""The manifest of a checkpoint: what it holds and under which conditions it was made, sealed with
sha256 sums.

Every file has its size and sum in it, and it has a sum of itself, so that a flipped or lost byte
anywhere is found. The checkpoint store writes and reads it; nothing here knows where checkpoints
live.
"""

import hashlib
import json
from pathlib import Path

from rampup.errors import RampupError
from rampup.rundir.records import Record

MANIFEST = "manifest.json"
SEAL = "sha256"


class Damaged(RampupError):
    """A checkpoint that is not as it was written."""

    def __init__(self, folder: Path, fault: str) -> None:
        super().__init__(
            f"checkpoint {folder} is damaged: {fault}", "an older checkpoint may be sound"
        )
        self.fault = fault


def seal(facts: Record) -> bytes:
    """The file's text: the facts, and last the sum of their own text."""
    return _text({**facts, SEAL: hashlib.sha256(_text(facts)).hexdigest()})


def read(folder: Path) -> Record:
    """The manifest of a checkpoint, if no byte of it has changed."""
    try:
        data = (folder / MANIFEST).read_bytes()
    except OSError as error:
        raise Damaged(folder, f"{MANIFEST}: {error.strerror}") from None
    try:
        found = json.loads(data)
        facts = {key: value for key, value in found.items() if key != SEAL}
    except (ValueError, AttributeError, RecursionError):
        raise Damaged(folder, f"{MANIFEST} can't be read") from None
    if seal(facts) != data or folder.name != f"step-{facts.get('step')}":
        raise Damaged(folder, f"{MANIFEST} is not what was written")
    return facts


def check_files(folder: Path, manifest: Record) -> None:
    """Read every file through, and compare."""
    for name, expected in manifest["files"].items():
        try:
            with open(folder / name, "rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise Damaged(folder, f"{name}: {error.strerror}") from None
        if found != expected["sha256"]:
            raise Damaged(folder, f"{name} is not what was written")


def _text(facts: Record) -> bytes:
    return json.dumps(facts, indent=1).encode() + b"\n"
