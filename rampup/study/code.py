"""The user's code for many runs at once: read once, and copied into each run from that copy. Called
by `sweep`."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from rampup.runs import code as snapshot
from rampup.runs.code import Snapshot


class SharedCode:
    """`take` does what snapshot.take does. What is kept in between is removed at the end."""

    def __init__(self, root: Path, name: str) -> None:
        """`name` is of the study: who has it alone may remove what another left, who was killed."""
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
            self.root.mkdir(parents=True, exist_ok=True)
            copy = self.root / f".code-{self.name}-{len(self.taken)}" / "code"
            shutil.rmtree(copy.parent, ignore_errors=True)
            self.taken[key] = copy, snapshot.take(command, cwd, copy)
        return self.taken[key]
