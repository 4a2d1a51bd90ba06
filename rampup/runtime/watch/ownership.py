"""Which files the processes of rank 0 have written: only those are read for metrics.

A process belongs to the rank by what rank.py put into its environment, or because one that belongs
started it. A file belongs if such a process has it open for writing, or has its number in the file's
name, as event files of TensorBoard do. One that was closed again and names no process, as a CSV,
belongs only if nobody else can have written it. In doubt it is left alone. Nothing here writes.
"""

import os
import re
import socket
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from rampup.rundir.files import RunDir
from rampup.runtime.watch.files import CSV_NAME, EVENTS_NAME, STATE_NAME

PROC = Path("/proc")
OTHER_RANK = re.compile(rb"RANK=(?!0$)\d+")
PID_IN_NAME = re.compile(r"tfevents\.(\d{9,11})\.(.+?)\.(\d+)\.\d+")
"""When, where and by which process an event file was begun."""
DEEPEST, MOST_ENTRIES, WALK_S = 6, 20_000, 0.2
"""How far a look through the working directory goes."""
REST = 50
"""So many times as long as a look took, none is taken again."""
LOOK_EVERY_S = 10.0
SKIPPED = (".git", ".venv", "venv", "node_modules", "__pycache__", "site-packages")
WRITABLE = os.O_WRONLY | os.O_RDWR


class Processes:
    """The processes of rank 0 on this node, as they come and go."""

    def __init__(self, run_dir: Path, attempt: int, proc: Path = PROC) -> None:
        self._marks = {b"RAMPUP_RUN_DIR=" + os.fsencode(run_dir), b"RAMPUP_ATTEMPT=%d" % attempt}
        self._proc = proc
        self.now: set[int] = set()
        self.ever: set[int] = set()
        self._checked: dict[tuple[int, bytes], bool | None] = {}

    def look(self) -> None:
        """Find out which processes belong to the rank at this moment."""
        parents: dict[int, int] = {}
        verdicts: dict[int, bool | None] = {}
        checked = {}
        for name in os.listdir(self._proc):
            fields = self._stat(name) if name.isdigit() else []
            if len(fields) > 19:
                pid, key = int(name), (int(name), fields[19])
                parents[pid] = int(fields[1])
                verdicts[pid] = self._checked[key] if key in self._checked else self._check(name)
                if verdicts[pid]:  # another may still become the program: exec keeps its number
                    checked[key] = verdicts[pid]
        self._checked = checked
        self.now = {pid for pid in parents if self._belongs(pid, parents, verdicts)}
        self.ever |= self.now

    def _belongs(self, pid: int, parents: dict[int, int], verdicts: dict[int, bool | None]) -> bool:
        """Follow the parents up to one whose environment decides."""
        for _ in range(len(parents)):
            verdict = verdicts.get(pid)
            if verdict is not None:
                return verdict
            if pid not in parents:
                return False
            pid = parents[pid]
        return False

    def _stat(self, name: str) -> list[bytes]:
        try:
            return (self._proc / name / "stat").read_bytes().rpartition(b")")[2].split()
        except OSError:
            return []

    def _check(self, name: str) -> bool | None:
        """Return whether the environment says that it is of this rank; None if it says nothing."""
        try:
            variables = (self._proc / name / "environ").read_bytes().split(b"\0")
        except OSError:  # another user's, or gone
            return None
        if not any(one.startswith(b"RAMPUP_RUN_DIR=") for one in variables):
            return None
        if not self._marks <= set(variables):
            return False
        return not any(OTHER_RANK.fullmatch(one) for one in variables)

    def open_files(self) -> Iterator[Path]:
        """Yield the files that they have open for writing, if metrics may be in them."""
        for pid in self.now:
            folder = self._proc / str(pid) / "fd"
            try:
                numbers = os.listdir(folder)
            except OSError:
                continue
            for number in numbers:
                try:
                    path = os.readlink(folder / number)
                    if may_hold_metrics(os.path.basename(path)) and self._writes(pid, number):
                        yield Path(path)
                except OSError:
                    continue

    def _writes(self, pid: int, number: str) -> bool:
        info = (self._proc / str(pid) / "fdinfo" / number).read_bytes()
        flags = re.search(rb"flags:\s*([0-7]+)", info)
        return flags is not None and bool(int(flags[1], 8) & WRITABLE)


def find_executable(pid: int) -> str:
    """Return the path of the program that a process runs; empty where it is not known."""
    try:
        return os.readlink(PROC / str(pid) / "exe")
    except OSError:
        return ""


def may_hold_metrics(name: str) -> bool:
    return EVENTS_NAME in name or name in (CSV_NAME, STATE_NAME)


class OwnFiles:
    """Finds the files of rank 0 below the working directory and the run's."""

    def __init__(self, run: RunDir, processes: Processes, cwd: Path, started: float) -> None:
        self._run, self._processes, self._started = run, processes, started
        self._roots = (cwd.resolve(), run.path.resolve())
        self._next_walk = 0.0
        self._found: set[Path] = set()

    def look(self, at_end: bool = False) -> list[Path]:
        """Return the files that are new."""
        self._processes.look()
        found = [path for path in self._processes.open_files() if self._is_inside(path)]
        now = time.monotonic()
        if at_end or now >= self._next_walk:
            found += [path for path in self._walk() if self._is_own(path)]
            self._next_walk = now + max(LOOK_EVERY_S, REST * (time.monotonic() - now))
        new = [path for path in dict.fromkeys(found) if path not in self._found]
        self._found.update(new)
        return new

    def _is_inside(self, path: Path) -> bool:
        """Whether a file is below the two folders, and none of rampup's own."""
        own = (self._run.path / "attempts", self._run.tensorboard)
        inside = any(path.is_relative_to(root) for root in self._roots)
        return inside and not any(path.is_relative_to(folder) for folder in own)

    def _walk(self) -> Iterator[Path]:
        """Yield the files that were written since the start and may hold metrics."""
        until, left = time.monotonic() + WALK_S, MOST_ENTRIES
        for root in self._roots:
            waiting = deque([(root, 0)])
            while waiting and left > 0 and time.monotonic() < until:
                folder, depth = waiting.popleft()
                try:
                    entries = list(os.scandir(folder))
                except OSError:
                    continue
                left -= len(entries)
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        is_run = os.path.exists(os.path.join(entry.path, "config.json"))
                        if depth < DEEPEST and entry.name not in SKIPPED and not is_run:
                            waiting.append((Path(entry.path), depth + 1))
                    elif may_hold_metrics(entry.name) and self._is_new(entry):
                        yield Path(entry.path)

    def _is_new(self, entry: os.DirEntry[str]) -> bool:
        try:
            found = entry.stat(follow_symlinks=False)
        except OSError:
            return False
        return found.st_mtime >= self._started and found.st_uid == os.getuid()

    def _is_own(self, path: Path) -> bool:
        if path in self._found or not self._is_inside(path):
            return False
        if path.is_relative_to(self._run.path.resolve()):  # nobody else writes there
            return True
        if EVENTS_NAME in path.name:
            named = PID_IN_NAME.search(path.name)
            return named is not None and self._is_named(int(named[1]), named[2], int(named[3]))
        return not (self._others_here() or self._others_run(path))

    def _is_named(self, began: int, host: str, pid: int) -> bool:
        is_here = host.partition(".")[0] == socket.gethostname().partition(".")[0]
        return is_here and began >= int(self._started) and pid in self._processes.ever

    def _others_here(self) -> bool:
        """Whether another program of this kind works in the same directory: one of Python, or the
        same as ours."""
        cwd = str(self._roots[0])
        own = {find_executable(pid) for pid in self._processes.now}
        for name in os.listdir(PROC):
            if name.isdigit() and int(name) not in self._processes.now:
                try:
                    place = os.readlink(PROC / name / "cwd")
                except OSError:
                    continue
                executable = find_executable(int(name))
                alike = executable in own or os.path.basename(executable).startswith("python")
                inside = place == cwd or place.startswith(f"{cwd}/")
                if inside and alike and not self._is_rampup(int(name)):
                    return True
        return False

    def _is_rampup(self, pid: int) -> bool:
        """Whether it is a part of rampup, which writes no metrics of a program there."""
        try:
            words = (PROC / str(pid) / "cmdline").read_bytes().split(b"\0")
        except OSError:
            return True
        run = os.fsencode(self._run.path)
        return run in words or any(
            word.startswith(b"rampup.") or os.path.basename(word) == b"rampup" for word in words[:4]
        )

    def _others_run(self, path: Path) -> bool:
        """Whether another run with the same directory was there while the file was written, on
        whatever node."""
        began = os.stat(path.parent).st_ctime - 1
        for folder in self._run.path.parent.iterdir():
            other = RunDir(folder)
            if folder == self._run.path or not other.config_file.is_file():
                continue
            if other.config.get("cwd") == self._run.config.get("cwd"):
                for attempt in other.attempts():
                    ended = attempt.facts.get("ended")
                    if not isinstance(ended, float) or ended >= min(began, self._started):
                        return True
        return False
