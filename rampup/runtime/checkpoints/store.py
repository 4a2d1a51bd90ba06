"""Checkpoints are written here: directories `checkpoints/step-<n>` that are whole or not there.

An engine hands over named files; they are written beside the target with a manifest, all brought to
the disk, and shown by one rename. A failed write leaves the checkpoint before it untouched, and
only the newest attempt of a run may write: one that was left behind on a lost node changes nothing.
rundir/checkpoints.py reads them. What is in the files is the engine's business: this imports no
framework.
"""

import hashlib
import io
import os
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from rampup.errors import RampupError, Superseded
from rampup.rundir.checkpoints import (
    DAMAGED,
    MANIFEST,
    REPLACED,
    UNFINISHED,
    Checkpoint,
    Damaged,
    Entry,
    Kind,
    Unreadable,
    delete,
    find_copies,
    find_later_damaged,
    list_entries,
    list_steps,
    name_trash,
    read_copy,
    retry,
    seal_manifest,
    verify_copy,
)
from rampup.rundir.files import RunDir
from rampup.rundir.records import Record, sync
from rampup.runtime.storage import guard_writes, say, storage_error

Content = bytes | Callable[[Any], None]
"""What goes into a file: its bytes, or a function that writes them."""


CONDITIONS = {
    "world_size": "{} ranks then, {} now",
    "threads": "{} threads per rank then, {} now",
    "cpu": "CPU {} then, {} now",
    "device": "device {} then, {} now",
    "gradients": "gradients={} then, {} now",
    "inter_threads": "{} operations at the same time then, {} now",
    "onednn": "TF_ENABLE_ONEDNN_OPTS={} then, {} now",
    "data": "data with the checksum {} then, {} now",
}
"""The conditions of a run that change its bits, and the words for a change."""


class CheckpointStore:
    """The checkpoints of a run as one of its attempts sees them."""

    def __init__(self, run: RunDir, attempt: int) -> None:
        self.run = run
        self.attempt = attempt
        self._damaged: set[int] = set()

    # reading --------------------------------------------------------------------------------------

    def latest(self) -> Checkpoint | None:
        """The newest sound one of the attempts before; each damaged one is named in the log.

        Not of this attempt itself: a rank that looks late must find what the others have found. One
        that can't be read ends the attempt: it may be sound, and then an older one must not take
        its place.
        """
        entries = list_entries(self.run)
        steps = sorted((each.step for each in entries if each.kind is Kind.STEP), reverse=True)
        for step in steps:
            path = self.run.checkpoint(step)
            try:
                found = retry(read_copy, path, step)
                if found.manifest["attempt"] < self.attempt:
                    return retry(verify_copy, path, step)
            except Damaged as error:
                self._damaged.add(step)
                say(f"warning: {error.message}; trying the one before")
            except Unreadable as error:
                error.hint = self._way_out(step, is_last=step == steps[-1])
                raise
        aside = any(each.kind in (Kind.DAMAGED, Kind.SKIPPED) for each in entries)
        if self._damaged or (aside and not steps):
            raise RampupError(
                f"no checkpoint in {self.run.checkpoints} is valid, so this attempt can't resume from one",
                f"to start over: rampup clean {self.run.id} --all, then start it again",
            )
        return None

    def _way_out(self, step: int, is_last: bool) -> str:
        again = f"nothing was changed; try again: rampup resume {self.run.id}"
        if is_last:
            return again
        return f"{again}; or continue from an older checkpoint: add --before {step}"

    def file(self, step: int, name: str) -> Path:
        """A file of a checkpoint that another rank has found sound."""
        return self.run.checkpoint(step) / name

    # writing --------------------------------------------------------------------------------------

    def take_over(self) -> None:
        """Before anything else in a new attempt, by rank 0: what older ones have half written is
        put out of reach.

        One of them may still live, on a node that Slurm has lost. If it has passed its last look at
        `check_newest` and is about to show a checkpoint, it will find nothing there to rename.
        """
        entries = list_entries(self.run)
        copies = find_copies(entries)
        with guard_writes(self.run.checkpoints):
            for entry in entries:
                if entry.kind is Kind.REPLACED and entry in copies.values():
                    # a replacement was cut off: it holds again
                    _rename(entry.path, self.run.checkpoint(entry.step))
                elif entry.kind is Kind.REPLACED or (
                    entry.kind is Kind.UNFINISHED and entry.attempt != self.attempt
                ):
                    self._throw_away(entry.path)
                elif entry.kind is Kind.TRASH:
                    delete(entry.path, ignore_errors=True)

    def check_newest(self) -> None:
        """Only the newest attempt may write."""
        newest = max(self.run.attempt_numbers(), default=0)
        if newest > self.attempt:
            raise Superseded(
                f"attempt {newest} of this run has begun: attempt {self.attempt} stops writing",
                f"rampup show {self.run.id}",
            )

    def save(self, step: int, files: Mapping[str, Content], meta: Mapping[str, Any]) -> Checkpoint:
        """All of it or nothing: a reader never sees a checkpoint that is half there."""
        target = self.run.checkpoint(step)
        beside = target.with_name(f"{target.name}{UNFINISHED}{self.attempt}")
        facts = {"step": step, "t": time.time(), "attempt": self.attempt}
        try:
            self.check_newest()
            made = _fill(beside, facts, files, meta)
            self.check_newest()
            if step in self._damaged:
                self._set_aside(step)
            self._show(beside, target)
        except OSError as error:
            shutil.rmtree(beside, ignore_errors=True)
            self.check_newest()  # a newer attempt has moved it away
            raise storage_error(target, error.strerror or str(error)) from error
        except BaseException:
            shutil.rmtree(beside, ignore_errors=True)
            raise
        self._damaged.discard(step)
        return Checkpoint(target, made)

    def keep(self, newest: int, *steps: int) -> None:
        """Remove all but the newest sound ones and these. What is damaged is set aside."""
        try:
            found = list_steps(self.run)
        except Unreadable as error:
            raise storage_error(self.run.checkpoints, error.fault) from error
        sound = [step for step in found if step not in self._damaged]
        kept = {*sound[:newest], *steps}
        with guard_writes(self.run.checkpoints):
            for step in found:
                if step in kept:
                    continue
                if step in self._damaged:
                    self._set_aside(step)
                else:
                    self._throw_away(self.run.checkpoint(step))

    def _set_aside(self, step: int) -> None:
        """Rename a damaged checkpoint: something of it may be saved. At most one is kept, and each
        that has to go is named in the log."""
        entry = Entry(self.run.checkpoint(step), Kind.STEP, step)
        entries = list_entries(self.run)
        later = find_later_damaged(entry, entries)
        if later is not None:
            self._throw_away(entry.path)
            say(f"removed {entry.name}, which is damaged; {later.name} is kept")
            return
        for each in entries:
            if each.kind is Kind.DAMAGED:
                self._throw_away(each.path)
                say(f"removed {each.name}, because a later checkpoint is damaged")
        self.check_newest()
        aside = entry.path.with_name(f"{DAMAGED}{entry.name}")
        if _rename(entry.path, aside):
            say(f"{entry.name} is damaged: set aside as {aside.name}")

    def _show(self, beside: Path, target: Path) -> None:
        """The commit. Where the step has a checkpoint already, that one is set aside and comes back
        if we end here."""
        old = target.with_name(f"{target.name}{REPLACED}{self.attempt}")
        if target.exists():
            target.rename(old)
        try:
            beside.rename(target)
        except OSError:
            _rename(old, target)
            raise
        sync(target.parent)
        if old.exists():
            self._throw_away(old)

    def _throw_away(self, path: Path) -> None:
        """By one rename, so that no reader meets half of it."""
        self.check_newest()
        trash = name_trash(path)
        if _rename(path, trash):
            # What can't be removed now (a file that is still open, over NFS) is in nobody's way;
            # `clean` tries again.
            delete(trash, ignore_errors=True)


class _Hashed:
    """A file to write to that adds up its own sha256 sum: the data is in memory now and need not be
    read again."""

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

    def read(self, size: int = -1) -> bytes:
        """numpy takes only what has this for a file; nobody reads."""
        raise io.UnsupportedOperation("read")

    def flush(self) -> None:
        self._file.flush()


def _fill(
    folder: Path, facts: Record, files: Mapping[str, Content], meta: Mapping[str, Any]
) -> Record:
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    written = {name: _write(folder / name, content) for name, content in files.items()}
    made = {**facts, "files": written, "meta": dict(meta)}
    _write(folder / MANIFEST, seal_manifest(made))
    sync(folder)
    return made


def _write(path: Path, content: Content) -> dict[str, Any]:
    with open(path, "wb") as file:
        hashed = _Hashed(file)
        try:
            _pour(content, hashed)
        except Exception:
            # torch.save turns a full disk into a RuntimeError that does not name it
            if hashed.error:
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


def _rename(path: Path, target: Path) -> bool:
    """False when it is gone already."""
    try:
        path.rename(target)
    except FileNotFoundError:
        return False
    return True


# bit for bit --------------------------------------------------------------------------------------


def find_differences(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return in words what is not the same as when the checkpoint was made, so that the resumed run
    can't be equal bit for bit to one that was never interrupted."""
    found = []
    for key, words in CONDITIONS.items():
        if then.get(key) != now.get(key):
            found.append(words.format(then.get(key), now.get(key)))
    before, versions = then.get("versions", {}), now.get("versions", {})
    for name in sorted(before.keys() | versions.keys()):
        if before.get(name) != versions.get(name):
            found.append(f"{name} {before.get(name)} then, {versions.get(name)} now")
    return found


def format_resumed(step: int, why_not: list[str]) -> str:
    """Return the line of the log: where the run resumed, and why not bit for bit."""
    reasons = f"; not bit for bit: {'; '.join(why_not)}" if why_not else ""
    return f"resumed at step {step}{reasons}"
