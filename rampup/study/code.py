"""The user's code for many runs at once: read once, and copied into each run from that copy. Called
by `sweep`."""

import os
import secrets
import shutil
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from rampup.core import processes
from rampup.rundir import records
from rampup.runs import code as snapshot
from rampup.runs.code import Snapshot

OWNER = "owner.json"
"""The process that has the folder."""


class SharedCode:
    """`take` does what snapshot.take does. What is kept in between is removed at the end."""

    def __init__(self, root: Path, name: str) -> None:
        """`name` is that of the study."""
        self.root, self.name = root, name
        self.taken: dict[tuple[str, str], tuple[Path, Snapshot]] = {}

    def __enter__(self) -> "SharedCode":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        for copy, _ in self.taken.values():
            shutil.rmtree(copy.parent, ignore_errors=True)

    def take(self, command: Sequence[str], cwd: Path, into: Path) -> Snapshot:
        index = snapshot.script_index(command)
        script = "" if index is None else command[index]
        copy, first = self._first(command, cwd, script)
        if copy.exists():
            shutil.copytree(copy, into, symlinks=True)
        argv = list(command)
        if index is not None:
            argv[index] = first.argv[index].replace(str(copy), str(into), 1)
        return first._replace(argv=tuple(argv))

    def _first(self, command: Sequence[str], cwd: Path, script: str) -> tuple[Path, Snapshot]:
        """Commands that differ in their arguments alone have the same code."""
        key = (str(cwd), script)
        if key not in self.taken:
            copy = self._make_folder() / "code"
            self.taken[key] = copy, snapshot.take(command, cwd, copy)
        return self.taken[key]

    def _make_folder(self) -> Path:
        """Make a folder that no other process has, even if two start the study at once. What a
        killed process of this machine has left is removed."""
        self.root.mkdir(parents=True, exist_ok=True)
        for left in self.root.glob(f".code-{self.name}-*"):
            owner = records.read_json(left / OWNER)
            if owner.get("host") == processes.host() and not processes.is_alive(owner):
                shutil.rmtree(left, ignore_errors=True)
        folder = self.root / f".code-{self.name}-{secrets.token_hex(4)}"
        folder.mkdir()
        records.write_new(folder / OWNER, processes.identify(os.getpid()))
        return folder
