"""A copy of the user's code as submitted, so that every attempt of a run executes the same code.

`take` is called once, when a run directory is made. The copied script runs instead of the original,
in the user's own working directory; whatever lies beside the code and is not copied (data, large
files, environments) is linked, so that paths relative to the script lead where they led before.
Nothing outside the copy is ever written.
"""

import os
import re
import stat
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path, PurePath, PurePosixPath
from typing import NamedTuple

from rampup.runs.codetree import MAX_DEPTH, CodeTree, entries_of, git_top

MAX_FILE_MB, MAX_GIT_MB, MAX_WALK_MB = 5, 100, 20
MAX_WALK_FILES, MAX_LINKS = 2000, 2000
KEPT_ABOVE = 2
"""So many folders above that of the script are kept, where its code leads there."""
MAX_READ_FILES, MAX_READ_BYTES = 100, 1_000_000
ABOVE = re.compile(
    r"(?<!\.)\.\.(?=[\"'/])|\bpardir\b|\.parents\b|\.parent\.parent|dirname\([\w.]*dirname"
)
"""How code names a folder above its own."""
NEVER_LINKED = frozenset((".git", "__pycache__"))
CREDENTIALS = (
    *(".env*", ".netrc", "*.pem", "*.key", "id_rsa*", "id_ed25519*"),
    *(".ssh", ".aws", ".kaggle", "credentials*", "secrets.*"),
)
"""Names of files and folders that are never copied, for others may read a run."""
LOOKS_SECRET = "looks like credentials"

PYTHON = re.compile(r"(python|pypy)[\d.]*")
SHELL = re.compile(r"(ba|da|k|z)?sh")
LONG_WITH_VALUE = ("--check-hash-based-pycs", "--rcfile", "--init-file")


class Snapshot(NamedTuple):
    root: Path | None
    """The directory that was copied; None when there was nothing that looks like a project."""
    files: int
    commit: str
    dirty: bool
    """Whether the copy differs from the commit."""
    skipped: list[str]
    """What was left out, and why."""
    argv: tuple[str, ...]
    """The command, its script replaced by the copy."""
    within: str = ""
    """The folder of the script, relative to the root, where folders above it are kept too."""


def take(command: Sequence[str], cwd: Path, into: Path) -> Snapshot:
    cwd = cwd.resolve()
    index = _own_script(command, cwd)
    script = None if index is None else _locate(cwd / command[index])
    base = cwd if script is None else script.parent
    top = git_top(base)
    if top is not None and not _is_no_project(top):
        return _copy_tree(command, index, script, CodeTree(top, into), into, by_git=True)
    if script is None and _is_no_project(base):
        return Snapshot(None, 0, "", False, [], tuple(command))
    tree = CodeTree(base, into)
    if script is not None and leads_above(tree, script):
        tree = CodeTree(base, into, above=min(KEPT_ABOVE, len(base.parents)))
    return _copy_tree(command, index, script, tree, into, by_git=False)


def leads_above(tree: CodeTree, script: Path) -> bool:
    """Return whether code names a folder above its own: `dirname(__file__) + "/../data"`. In the
    copy that must lead to the user's own folders, and not into those of the runs."""
    names = [script.relative_to(tree.root).as_posix(), *islice(tree.walk(1), MAX_READ_FILES)]
    for path in (tree.root / name for name in names if name.endswith((".py", ".sh"))):
        try:
            if path.stat().st_size < MAX_READ_BYTES and ABOVE.search(path.read_text("utf-8")):
                return True
        except (OSError, UnicodeDecodeError):  # not copied either, or another encoding
            continue
    return False


def _copy_tree(
    command: Sequence[str],
    index: int | None,
    script: Path | None,
    tree: CodeTree,
    into: Path,
    by_git: bool,
) -> Snapshot:
    first = [] if script is None else [script.relative_to(tree.root).as_posix()]
    commit, dirty = "", False
    if by_git:
        repository = tree.repository()
        commit, dirty = repository.commit, repository.changed or bool(repository.untracked)
        copy = _Copy(tree, into, MAX_GIT_MB)
        copy.add(_without_placeholders([*first, *repository.tracked, *repository.untracked]))
    else:
        copy = _Copy(tree, into, MAX_WALK_MB)
        names = tree.walk(0 if _is_no_project(tree.base) else MAX_DEPTH)
        copy.add([*first, *islice(names, MAX_WALK_FILES)])
        if next(names, None) is not None:
            copy.skipped.append(f"more than {MAX_WALK_FILES} files: the rest is left out")
        if tree.unseen:
            copy.skipped.append(f"{tree.unseen} directories: too many to look into")
    copy.link_the_rest()
    copy.keep_modes()
    argv = list(command)
    if index is not None and first[0] in copy.files:
        argv[index] = str(into / first[0])
    return Snapshot(
        tree.root, len(copy.files), commit, dirty, copy.skipped, tuple(argv), tree.within
    )


class _Copy:
    """The directory that is filled."""

    def __init__(self, tree: CodeTree, into: Path, max_mb: int) -> None:
        self.tree, self.root, self.into, self.max_mb = tree, tree.root, into, max_mb
        self.files: dict[str, int] = {}
        self.skipped: list[str] = []
        into.mkdir(parents=True, exist_ok=True)

    def add(self, names: Iterable[str]) -> None:
        """Copy the files of these names, until there is enough."""
        total = 0
        for name in dict.fromkeys(names):
            try:
                info = os.lstat(self.root / name)
            except (FileNotFoundError, NotADirectoryError):
                # git knows it, and the user has deleted it
                continue
            if looks_secret(name):
                self.skipped.append(f"{name}: {LOOKS_SECRET}")
                continue
            if not self._is_wanted(name, info):
                continue
            total += info.st_size
            if total > self.max_mb * 1_000_000:
                self.skipped.append(f"{name} and all after it: the copy ends at {self.max_mb} MB")
                return
            self._copy(name, stat.S_ISLNK(info.st_mode))
            self.files[name] = info.st_size

    def _is_wanted(self, name: str, info: os.stat_result) -> bool:
        if stat.S_ISLNK(info.st_mode):
            return not self.tree.holds_runs(self.root / name)
        if not stat.S_ISREG(info.st_mode):  # a submodule, a pipe
            return False
        if info.st_size > MAX_FILE_MB * 1_000_000:
            self.skipped.append(f"{name}: {info.st_size / 1e6:.1f} MB")
            return False
        if not os.access(self.root / name, os.R_OK):
            self.skipped.append(f"{name}: can't be read")
            return False
        return True

    def _copy(self, name: str, is_link: bool) -> None:
        import shutil  # slow to import, and only commands are copied

        source, target = self.root / name, self.into / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if is_link:
            target.symlink_to(self._link_text(source))
        else:
            shutil.copy2(source, target)

    def _link_text(self, source: Path) -> str:
        """A link that stays inside the code stays as it is; any other keeps leading to what it
        meant."""
        text = os.readlink(source)
        meant = Path(os.path.normpath(source.parent / text))
        return text if not os.path.isabs(text) and meant.is_relative_to(self.root) else str(meant)

    def keep_modes(self) -> None:
        """Give every directory of the copy the mode of its original: what nobody else could open
        stays closed. Only a place where everybody may write, such as /tmp, becomes none."""
        for directory in reversed(self._directories()):
            mode = (self.root / directory).stat().st_mode & 0o775
            of_the_folder = (self.into / directory).stat().st_mode & 0o7000
            (self.into / directory).chmod(of_the_folder | mode | stat.S_IRWXU)

    def link_the_rest(self) -> None:
        """In every directory of the copy: a link to each entry of the original that has no copy."""
        directories, links = self._directories(), 0
        # all of them before the first link, which would take the place of one
        for directory in directories:
            (self.into / directory).mkdir(parents=True, exist_ok=True)
        parents = PurePosixPath(self.tree.within).parents if self.tree.within else ()
        above = {str(parent) for parent in parents}
        for directory in sorted(directories, key=lambda name: name in above):
            for entry in entries_of(self.root / directory):
                target = self.into / directory / entry.name
                if (
                    entry.name in NEVER_LINKED
                    or (directory in above and entry.name.startswith("."))
                    or os.path.lexists(target)
                    or self.tree.holds_runs(Path(entry.path))
                ):
                    continue
                links += 1
                if links > MAX_LINKS:
                    self.skipped.append(
                        f"more than {MAX_LINKS} other entries: the rest of them is not linked"
                    )
                    return
                target.symlink_to(entry.path)

    def _directories(self) -> list[str]:
        """Those with copied files, and those on the way to the runs: linked whole, they would lead
        into the copy."""
        found = {str(parent) for name in self.files for parent in PurePosixPath(name).parents}
        runs_root = self.tree.runs_root
        if self.root in runs_root.parents:
            found.update(
                str(parent) for parent in PurePosixPath(runs_root.relative_to(self.root)).parents
            )
        return sorted(found | {"."})


def looks_secret(name: str) -> bool:
    """Return whether a file, or a folder that it lies in, is named like one that holds credentials."""
    return any(
        fnmatchcase(part.lower(), pattern)
        for part in PurePosixPath(name).parts
        for pattern in CREDENTIALS
    )


def _without_placeholders(names: list[str]) -> list[str]:
    """Without the .gitkeep or README of a directory that has no other file in git: it is for data,
    and linked whole."""
    real = [name for name in names if not PurePosixPath(name).name.startswith((".", "README"))]
    code = {str(parent) for name in real for parent in PurePosixPath(name).parents} | {"."}
    kept = set(real)
    return [name for name in names if name in kept or str(PurePosixPath(name).parent) in code]


# the script ---------------------------------------------------------------------------------------


def script_index(command: Sequence[str]) -> int | None:
    """Which word of a command is the script's path, whether the file exists or not; None for `-m`,
    `-c`, programs."""
    program = PurePath(command[0]).name
    if PYTHON.fullmatch(program):
        return _first_operand(command, ends="cm", takes_value="XW")
    if SHELL.fullmatch(program):
        return _first_operand(command, ends="cs", takes_value="oO")
    return 0 if "/" in command[0] else None


def _first_operand(command: Sequence[str], ends: str, takes_value: str) -> int | None:
    """Skips the interpreter's own options; `ends` are those after which no script follows."""
    index = 1
    while index < len(command):
        word = command[index]
        if word == "--":
            return index + 1 if index + 1 < len(command) else None
        if word[:1] not in ("-", "+"):
            return index
        taken = _words_of_option(word, ends, takes_value)
        if taken == 0:
            return None
        index += taken
    return None


def _words_of_option(word: str, ends: str, takes_value: str) -> int:
    """How many words an option is, its value included; 0 when no script can follow."""
    if word.startswith("--"):
        return 2 if word in LONG_WITH_VALUE else 1
    for place, letter in enumerate(word[1:], start=2):
        if letter in ends:
            return 0
        if letter in takes_value:
            return 2 if place == len(word) else 1
    return 0 if word == "-" else 1


def _own_script(command: Sequence[str], cwd: Path) -> int | None:
    """The index of a script that is the user's: an installed program is not."""
    index = script_index(command)
    if index is None or not (cwd / command[index]).is_file():
        return None
    script = _locate(cwd / command[index])
    if _is_installed(script) or (index == 0 and not script.is_relative_to(git_top(cwd) or cwd)):
        return None
    return index


def _is_installed(path: Path) -> bool:
    in_bin = path.parent.name == "bin" and (path.parent.parent / "pyvenv.cfg").is_file()
    return in_bin or "site-packages" in path.parts


def _locate(path: Path) -> Path:
    """The real directory, but the name as given: a link is copied as a link."""
    return path.parent.resolve() / path.name


def _is_no_project(directory: Path) -> bool:
    """A home directory, even one that git keeps, the root of the file system, and a place for
    everybody like /tmp."""
    if directory == Path(directory.anchor) or directory.stat().st_mode & stat.S_ISVTX:
        return True
    try:
        return directory == Path.home().resolve()
    except RuntimeError:  # nobody knows this user's home
        return False
