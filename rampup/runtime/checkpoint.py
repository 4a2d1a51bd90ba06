"""Checkpoints: directories `checkpoints/step-<n>` that are whole or not there.

An engine hands over named files; they are written beside the target with a manifest of sizes and sha256 sums, all
brought to the disk, and shown by one rename. A failed write leaves the checkpoint before it untouched. What is in the
files is the engine's business: this imports no framework.
"""

import hashlib
import os
import shutil
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from rampup import records, rundir
from rampup.errors import RampupError
from rampup.runtime.storage import writing

MANIFEST = "manifest.json"
Content = bytes | Callable[[Any], None]
"""What goes into a file: its bytes, or a function that writes them."""


@dataclass(frozen=True)
class Checkpoint:
    path: Path
    step: int
    meta: dict[str, Any]

    @property
    def name(self) -> str:
        return self.path.name

    def file(self, name: str) -> Path:
        return self.path / name


class CheckpointStore:
    def __init__(self, run: rundir.RunDir, attempt: int) -> None:
        self._run = run
        self._attempt = attempt

    def save(self, step: int, files: Mapping[str, Content], meta: Mapping[str, Any]) -> Checkpoint:
        """All of it or nothing: a reader never sees a checkpoint that is half there."""
        target = self._run.checkpoint(step)
        beside = target.with_name(f"{target.name}.tmp-{self._attempt}")
        with writing(target):
            try:
                _fill(beside, step, files, meta)
                _show(beside, target)
            except BaseException:
                shutil.rmtree(beside, ignore_errors=True)
                raise
        return Checkpoint(target, step, dict(meta))

    def steps(self) -> list[int]:
        """The steps that have a checkpoint, the newest first, whether or not it is sound."""
        try:
            names = os.listdir(self._run.checkpoints)
        except OSError:
            return []
        found = [name.removeprefix("step-") for name in names if name.startswith("step-")]
        return sorted((int(step) for step in found if step.isdigit()), reverse=True)

    def load(self, step: int) -> Checkpoint:
        """The checkpoint of that step, read through and compared with its manifest."""
        path = self._run.checkpoint(step)
        manifest = records.read_json(path / MANIFEST)
        fault = _fault(path, manifest)
        if fault:
            raise RampupError(f"checkpoint {path} is damaged: {fault}", "an older checkpoint may be sound")
        return Checkpoint(path, step, manifest["meta"])

    def file(self, step: int, name: str) -> Path:
        """A file of a checkpoint that another rank has found sound."""
        return self._run.checkpoint(step) / name

    def latest(self) -> Checkpoint | None:
        """The newest one that is sound; each damaged one is named in the log."""
        for step in self.steps():
            try:
                return self.load(step)
            except RampupError as error:
                print(f"warning: {error.message}; trying the one before", flush=True)
        return None

    def keep(self, steps: Iterable[int]) -> None:
        """Remove all others, and what an attempt left half written."""
        kept = {self._run.checkpoint(step).name for step in steps}
        with writing(self._run.checkpoints):
            for entry in list(os.scandir(self._run.checkpoints)):
                if entry.name not in kept:
                    shutil.rmtree(entry.path)


class _Hashed:
    """A file to write to that adds up its own sha256 sum: the data is in memory now and need not be read again."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.sum = hashlib.sha256()
        self.size = 0
        self.error: OSError | None = None

    def write(self, data: Any) -> int:
        self.sum.update(data)
        self.size += memoryview(data).nbytes
        try:
            return self._file.write(data)
        except OSError as error:
            self.error = error
            raise

    def flush(self) -> None:
        self._file.flush()


def _fill(folder: Path, step: int, files: Mapping[str, Content], meta: Mapping[str, Any]) -> None:
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    written = {name: _write(folder / name, content) for name, content in files.items()}
    manifest = {"step": step, "t": time.time(), "files": written, "meta": dict(meta)}
    records.write_json(folder / MANIFEST, manifest)
    _sync(folder)


def _write(path: Path, content: Content) -> dict[str, Any]:
    with open(path, "wb") as file:
        hashed = _Hashed(file)
        try:
            _pour(content, hashed)
        except Exception:
            if hashed.error:  # torch.save turns a full disk into a RuntimeError that does not name it
                raise hashed.error from None
            raise
        file.flush()
        os.fsync(file.fileno())
    return {"size": hashed.size, "sha256": hashed.sum.hexdigest()}


def _pour(content: Content, into: _Hashed) -> None:
    if isinstance(content, bytes):
        into.write(content)
    else:
        content(into)


def _show(beside: Path, target: Path) -> None:
    old = target.with_name(f"{beside.name}-old")
    if target.exists():  # the same step again, by a later attempt
        target.rename(old)
    beside.rename(target)
    _sync(target.parent)
    if old.exists():
        shutil.rmtree(old)


def _fault(path: Path, manifest: Mapping[str, Any]) -> str:
    """What is wrong with a checkpoint; empty when nothing is."""
    if not isinstance(manifest.get("files"), dict) or "meta" not in manifest:
        return "it has no readable manifest"
    for name, expected in manifest["files"].items():
        try:
            with open(path / name, "rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            return f"{name}: {error.strerror}"
        if found != expected["sha256"]:
            return f"{name} is not what was written"
    return ""


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
