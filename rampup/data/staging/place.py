"""The folder of a run on the node's own disk: found, made safely, kept between attempts, removed.

    ROOT/rampup-UID/RUN/        one folder for each run, all in one of the user's own

ROOT may be a place where everybody writes, so the user's folder must belong to the user and be
closed to all others, and no link is followed on the way. Every process that uses a run's folder
holds a shared lock on a file in it. The kernel drops it however the process ends, and nobody ever
waits for it: a folder is removed only by a process that gets the lock for itself at once.
"""

import contextlib
import fcntl
import os
import shutil
import stat
import time
from collections.abc import Callable, Mapping
from pathlib import Path

KEPT_S = 24 * 3600
"""How long the folder of a run that was killed waits for its next attempt."""
IN_USE, ENDED = "in-use", "ended"
RESERVED_BYTES = 200_000_000
"""What staging leaves free for everything else on the disk."""
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class NotStaged(Exception):
    """Why nothing, or nothing more, is staged. The run continues and reads the files themselves."""


def find_disk(local_disk: str, environ: Mapping[str, str] = os.environ) -> Path:
    """Return the node's own disk: what the cluster's profile says, or the job's temporary folder."""
    named = os.path.expandvars(local_disk)
    for place in (named, environ.get("SLURM_TMPDIR"), environ.get("TMPDIR")):
        if place and "$" not in place:
            return Path(place)
    raise NotStaged(
        "no disk of the node's own is known: set local_disk in the cluster's profile, or TMPDIR"
    )


class Place:
    """The folder of one run, opened by one rank."""

    def __init__(self, root: Path, run: str) -> None:
        self.path = root / f"rampup-{os.geteuid()}" / run
        self._name = run
        try:
            _check_root(root)
            self._own = _open_own_folder(self.path.parent)
            self.fd = _make_folder(self._own, run, self.path)
            self._hold()
        except OSError as error:
            reason = error.strerror or str(error)
            raise NotStaged(f"can't use {self.path}: {reason}") from error

    def folder(self, name: str) -> "Folder":
        """Return a folder of this one."""
        try:
            return Folder(self.path / name, _make_folder(self.fd, name, self.path / name))
        except OSError as error:
            raise NotStaged(f"can't use {self.path / name}: {error.strerror or error}") from error

    def mark_ended(self) -> None:
        """Record that the run will not be continued. The last process that leaves removes it."""
        with contextlib.suppress(OSError):
            os.close(os.open(ENDED, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600, dir_fd=self.fd))

    def leave(self) -> None:
        """Release the folder; remove it if the run has ended and nobody else uses it."""
        with contextlib.suppress(OSError):
            fcntl.flock(self._lock, fcntl.LOCK_UN)
        self._remove_if(self._name, lambda folder: _has(folder, ENDED))
        os.close(self._lock)

    def remove_leftovers(self, now: float | None = None) -> None:
        """Remove folders of this user's other runs that nobody uses: runs that have ended, and runs
        that were killed and did not come back within a day."""
        now = time.time() if now is None else now
        for name in os.listdir(self._own):
            if name != self._name:
                self._remove_if(name, lambda folder: _has(folder, ENDED) or _age(folder, now))

    def _hold(self) -> None:
        """Hold the shared lock, and note the time."""
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        self._lock = os.open(IN_USE, flags, 0o600, dir_fd=self.fd)
        fcntl.flock(self._lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        if os.fstat(self._lock).st_nlink == 0:
            raise FileNotFoundError(2, "it was just removed")
        os.utime(self._lock)
        with contextlib.suppress(FileNotFoundError):  # the run is resumed after all
            os.unlink(ENDED, dir_fd=self.fd)

    def _remove_if(self, name: str, is_done: Callable[[int], bool]) -> None:
        """Remove a run's folder if it is done with and nobody holds its lock."""
        try:
            folder = os.open(name, FOLDER, dir_fd=self._own)
        except OSError:  # a file, a link, or just removed
            return
        lock = _lock_alone(folder) if is_done(folder) else None
        if lock is not None:
            shutil.rmtree(name, ignore_errors=True, dir_fd=self._own)
            os.close(lock)
        os.close(folder)


class Folder:
    """A folder of our own, whose files are opened in it and never through a link."""

    def __init__(self, path: Path, fd: int) -> None:
        self.path, self.fd = path, fd

    def open(self, name: str, flags: int) -> int:
        return os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=self.fd)

    def read(self, name: str) -> bytes | None:
        """Return a small file, or None where it is absent."""
        try:
            fd = self.open(name, os.O_RDONLY)
        except OSError:
            return None
        with open(fd, "rb") as file:
            return file.read()

    def write(self, name: str, data: bytes) -> None:
        """Write a small file whole, or not at all."""
        made = f"{name}.{os.urandom(6).hex()}"
        with open(self.open(made, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "wb") as file:
            file.write(data)
        os.rename(made, name, src_dir_fd=self.fd, dst_dir_fd=self.fd)

    def claim(self, name: str) -> bool:
        """Make an empty file; of all processes only one can."""
        try:
            os.close(self.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True

    def remove(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self.fd)

    def free_bytes(self) -> int:
        """Return the room on this disk, without what is left to others."""
        found = os.fstatvfs(self.fd)
        return found.f_bavail * found.f_frsize - RESERVED_BYTES


def _check_root(root: Path) -> None:
    about = root.stat()
    if about.st_mode & 0o022 and not about.st_mode & stat.S_ISVTX:
        raise NotStaged(f"others may replace what is in {root}: it is writable and not sticky")


def _open_own_folder(path: Path) -> int:
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)
    return _check_own(os.open(path, FOLDER), path)


def _make_folder(parent: int, name: str, path: Path) -> int:
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, 0o700, dir_fd=parent)
    return _check_own(os.open(name, FOLDER, dir_fd=parent), path)


def _check_own(fd: int, path: Path) -> int:
    about = os.fstat(fd)
    if about.st_uid != os.geteuid():
        os.close(fd)
        raise NotStaged(f"{path} belongs to the user with the number {about.st_uid}")
    if about.st_mode & 0o077:
        os.close(fd)
        raise NotStaged(f"{path} is open to others: chmod 700 {path}")
    return fd


def _has(folder: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return False
    return True


def _age(folder: int, now: float) -> bool:
    """Return whether a folder was last opened more than a day ago."""
    try:
        about = os.stat(IN_USE, dir_fd=folder, follow_symlinks=False)
    except OSError:
        about = os.fstat(folder)
    return now - about.st_mtime > KEPT_S


def _lock_alone(folder: int) -> int | None:
    """Return the lock of a folder that nobody uses. Where locks don't work nothing is removed."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        lock = os.open(IN_USE, flags, 0o600, dir_fd=folder)
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        return None
    return lock
