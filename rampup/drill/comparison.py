"""The comparison of two runs, bit for bit: their last checkpoints, and their metrics without times.

Used by verdict.py and by tests. Files are compared by the checksums in the manifests. Where those
differ, the content of a file of `torch.save` is compared, because equal tensors may be written in
two ways: a pickle also records which of its strings were one object in memory, and after a resume
they are not. Never imports a framework and never executes anything of a checkpoint.
"""

import hashlib
import pickle
import zipfile
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from rampup.rundir import checkpoints
from rampup.rundir.checkpoints import Checkpoint, Damaged
from rampup.rundir.files import RunDir
from rampup.rundir.records import Record

TIMES = ("t", "samples_s")
TIME_SUFFIX = "_s"
"""The ending of metrics in seconds or per second."""


class Comparison(NamedTuple):
    """Whether two runs are equal."""

    equal: bool | None
    """None when there is nothing to compare."""
    difference: str = ""
    """The first difference, in words."""


def compare_runs(baseline: RunDir, other: RunDir) -> Comparison:
    """Compare the undisturbed run with one that met a fault."""
    try:
        one, two = read_last_checkpoint(baseline), read_last_checkpoint(other)
    except Damaged as error:
        return Comparison(False, error.message)
    rows, others = read_rows(baseline), read_rows(other)
    if one is None and two is None and not rows and not others:
        return Comparison(None, "it leaves no checkpoint and no metrics")
    difference = compare_checkpoints(one, two) or compare_rows(rows, others)
    return Comparison(not difference, difference)


def read_last_checkpoint(run: RunDir) -> Checkpoint | None:
    """Return the last checkpoint after a check of all its bytes; raises Damaged."""
    steps = checkpoints.list_steps(run)
    return checkpoints.verify_checkpoint(run, steps[0]) if steps else None


# checkpoints --------------------------------------------------------------------------------------


def compare_checkpoints(one: Checkpoint | None, two: Checkpoint | None) -> str:
    """Describe the first difference; empty when the checkpoints are equal."""
    if one is None or two is None:
        return "" if one is two else "only one of them has a checkpoint"
    if one.step != two.step:
        return f"the last checkpoint is of step {two.step}, not {one.step}"
    mine, theirs = one.manifest["files"], two.manifest["files"]
    if mine.keys() != theirs.keys():
        return f"{two.name} has other files"
    for name, expected in mine.items():
        if expected["sha256"] == theirs[name]["sha256"]:
            continue
        if not have_same_content(one.file(name), two.file(name)):
            return f"{two.name}/{name} differs"
    return ""


def have_same_content(one: Path, two: Path) -> bool:
    """Compare the content of two files of `torch.save`; for other files the answer is no."""
    if not (zipfile.is_zipfile(one) and zipfile.is_zipfile(two)):
        return False
    try:
        found, expected = read_content(one), read_content(two)
    except (pickle.UnpicklingError, LookupError, TypeError, ValueError, AttributeError, EOFError):
        return False  # not a file of torch.save, or it holds something that can't be compared
    return found is not None and found == expected


def read_content(path: Path) -> Any:
    """Read a file of `torch.save`, with a checksum in the place of each tensor.

    Returns None for any other zip file.
    """
    with zipfile.ZipFile(path) as archive:
        pickles = [name for name in archive.namelist() if name.endswith("/data.pkl")]
        if len(pickles) != 1:
            return None
        with archive.open(pickles[0]) as file:
            folder = pickles[0].rpartition("/")[0]
            return InertUnpickler(file, archive, folder).load()


class PickledObject:
    """Stands for any object in a pickle: the arguments that made it, and what was put into it."""

    def __new__(cls, *arguments: Any) -> "PickledObject":
        made = super().__new__(cls)
        made.held = [*arguments]
        return made

    held: list[Any]

    def __setitem__(self, key: Any, value: Any) -> None:
        self.held.append((key, value))

    def append(self, value: Any) -> None:
        self.held.append(value)

    def __setstate__(self, state: Any) -> None:
        self.held.append(state)

    def __eq__(self, other: object) -> bool:
        return (
            type(self) is type(other)
            and isinstance(other, PickledObject)
            and self.held == other.held
        )

    def __hash__(self) -> int:
        return hash(type(self))


@cache
def placeholder_class(name: str) -> type[PickledObject]:
    """Return the class that stands for a class or a function of that name."""
    return type(name, (PickledObject,), {})


class Storage(NamedTuple):
    """The memory that tensors are views of; bytes between the tensors mean nothing."""

    kind: type[PickledObject]
    device: str
    elements: int
    data: bytes


def summarize_tensor(
    storage: Storage, offset: int, size: tuple[int, ...], stride: tuple[int, ...], *rest: Any
) -> list[Any]:
    """Return the type and the shape of a tensor, and the checksum of its own bytes."""
    width = len(storage.data) // max(1, storage.elements)
    reach = 0
    if all(size):
        reach = 1 + sum((length - 1) * step for length, step in zip(size, stride, strict=True))
    view = memoryview(storage.data)[offset * width : (offset + reach) * width]
    return [storage.kind, storage.device, size, stride, rest, hashlib.sha256(view).hexdigest()]


class InertUnpickler(pickle.Unpickler):
    """Reads a pickle without importing or calling anything that it names."""

    def __init__(self, file: Any, archive: zipfile.ZipFile, folder: str) -> None:
        super().__init__(file)
        self._archive, self._folder = archive, folder
        self._read: dict[str, bytes] = {}

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return summarize_tensor
        return placeholder_class(f"{module}.{name}")

    def persistent_load(self, storage: Any) -> Storage:
        """Read a storage: ("storage", type, key, device, number of elements)."""
        _, kind, key, device, elements = storage
        if key not in self._read:
            self._read[key] = self._archive.read(f"{self._folder}/data/{key}")
        return Storage(kind, device, elements, self._read[key])


# metrics ------------------------------------------------------------------------------------------


def read_rows(run: RunDir) -> list[Record]:
    """Read all rows of metrics without times and rates, which are never the same."""
    rows = []
    for row in run.history():
        rows.append({name: value for name, value in row.items() if not is_time(name)})
    return rows


def is_time(name: str) -> bool:
    return name in TIMES or name.endswith(TIME_SUFFIX)


def compare_rows(rows: list[Record], others: list[Record]) -> str:
    """Describe the first difference; empty when the rows are equal."""
    for one, two in zip(rows, others, strict=False):
        if one != two:
            name = next(name for name in {**one, **two} if one.get(name) != two.get(name))
            return f"{name} at step {one.get('step')}: {two.get(name)}, not {one.get(name)}"
    if len(rows) != len(others):
        return f"it has {len(others)} rows of metrics, not {len(rows)}"
    return ""
