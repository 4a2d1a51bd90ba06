"""Which files are a user's code: in a git repository what git would commit, elsewhere small text
files near the script.

snapshot.py copies what is listed here. Data, environments, caches and runs are no code: they may be
many or huge. Only reads, and runs git to ask; never follows a symbolic link.
"""

import os
import re
import subprocess
from collections import deque
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from rampup.rundir.files import RunDir
from rampup.rundir.find import is_run_name

ENDINGS = (".py", ".sh", ".toml", ".yaml", ".yml", ".json", ".cfg", ".ini", ".txt", ".md")
NO_CODE = frozenset((".git", "__pycache__", "node_modules", "site-packages"))
MAX_DEPTH, MAX_DIRECTORIES = 3, 200
LOOKED_AT = 1000
"""So many entries of a directory tell whether it holds runs; a directory of data may have a
million."""
GIT_TIMEOUT_S = 60
ANOTHER_REPOSITORY = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR")
"""Variables that a hook or an alias sets, and that would make git speak of its own repository."""


class Repository(NamedTuple):
    """What git says of a working tree; names are relative to its top."""

    commit: str
    """Empty before the first commit."""
    changed: bool
    """Whether a tracked file differs from the commit."""
    tracked: list[str]
    untracked: list[str]
    """Those that are not ignored."""


class CodeTree:
    """A directory that holds a user's code, and what in it is none."""

    def __init__(self, base: Path, copy: Path, above: int = 0) -> None:
        """`copy` is RUN_DIR/code, which may lie inside the root, as may the directory of all
        runs. The root is so many folders above the base."""
        self.base = base
        self.root = (base, *base.parents)[above]
        self.within = base.relative_to(self.root).as_posix() if above else ""
        self.copy = copy.resolve()
        self.runs_root = self.copy.parent.parent
        self.unseen = 0
        """Directories that `walk` did not reach."""
        self._known = {"": True, self.within: True}

    def has_code(self, directory: str) -> bool:
        """Whether files of that directory (relative to the root) may be copied."""
        if directory not in self._known:
            parent, _, name = directory.rpartition("/")
            self._known[directory] = (
                self.has_code(parent) and name not in NO_CODE and not self._is_apart(directory)
            )
        return self._known[directory]

    def _is_apart(self, directory: str) -> bool:
        path = self.root / directory
        return path.is_symlink() or (path / "pyvenv.cfg").is_file() or self.holds_runs(path)

    def holds_runs(self, path: Path) -> bool:
        """A run, the directory of runs, or the copy that is being made."""
        if path in (self.copy, self.copy.parent, self.runs_root) or _is_run(path):
            return True
        try:
            with os.scandir(path) as entries:
                return any(_is_run(Path(entry.path)) for entry in islice(entries, LOOKED_AT))
        except OSError:  # a file, or a directory that can't be read
            return False

    def walk(self, max_depth: int) -> Iterator[str]:
        """Small text files without git's help, the nearest to the base first."""
        waiting, seen = deque([(self.within, 0)]), 0
        while waiting and seen < MAX_DIRECTORIES:
            seen += 1
            directory, depth = waiting.popleft()
            for entry in entries_of(self.root / directory):
                name = f"{directory}/{entry.name}".removeprefix("/")
                if not entry.is_dir(follow_symlinks=False):
                    if name.endswith(ENDINGS):
                        yield name
                elif depth < max_depth and self._is_walked(name):
                    waiting.append((name, depth + 1))
        self.unseen = len(waiting)

    def _is_walked(self, directory: str) -> bool:
        name = directory.rpartition("/")[2]
        return not name.startswith(".") and name != "runs" and self.has_code(directory)

    def repository(self) -> Repository:
        """What git lists, when the root is the top of a working tree."""
        commit = _git(self.root, "rev-parse", "--verify", "--quiet", "HEAD")
        changes = _git(self.root, "status", "--porcelain", "--untracked-files=no")
        tracked = self._list_files("--cached")
        others = self._list_files("--others", "--exclude-standard", *self._runs_excluded())
        return Repository((commit or "").strip(), bool(changes), tracked, others)

    def _list_files(self, *options: str) -> list[str]:
        names = (_git(self.root, "ls-files", "-z", *options) or "").split("\0")
        return [
            name for name in dict.fromkeys(names) if name and self.has_code(name.rpartition("/")[0])
        ]

    def _runs_excluded(self) -> list[str]:
        """Thousands of runs in a tree that does not ignore them: git need not look into each."""
        if self.root not in self.runs_root.parents:
            return []
        name = self.runs_root.relative_to(self.root).as_posix()
        return ["--exclude=/" + re.sub(r"([\\*?\[\] !#])", r"\\\1", name) + "/"]


def git_top(directory: Path) -> Path | None:
    """The top of the working tree that holds a directory, if there is one and git is installed."""
    top = _git(directory, "rev-parse", "--show-toplevel")
    return Path(top.removesuffix("\n")) if top else None


def _git(where: Path, *words: str) -> str | None:
    env = {name: value for name, value in os.environ.items() if name not in ANOTHER_REPOSITORY}
    argv = ["git", "--no-optional-locks", "-C", str(where), *words]
    try:
        done = subprocess.run(
            argv, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=GIT_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return os.fsdecode(done.stdout) if done.returncode == 0 else None


def _is_run(path: Path) -> bool:
    name = path.name.removeprefix(".").removesuffix(".making")
    return is_run_name(name) and RunDir(path).run_file.is_file()


def entries_of(directory: Path) -> list[os.DirEntry[str]]:
    """In the order of their names; none of a directory that can't be read."""
    try:
        with os.scandir(directory) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return []
