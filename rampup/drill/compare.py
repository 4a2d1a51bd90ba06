"""Whether two runs came to the same end, bit for bit: their last checkpoints and their metrics
without times and rates.

Framework-free. Files are compared by the sums in the manifests; where those differ, a file of
`torch.save` is compared by what is in it, because equal tensors may be written in two ways: a
pickle also tells which of its words were one object in memory, and after a resume they are not.
Nothing of a checkpoint is executed.
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
OF_TIME = "_s"
"""What ends so is in seconds, or per second."""


class Comparison(NamedTuple):
    equal: bool | None
    """None when there is nothing to compare."""
    difference: str = ""
    """The first one, in words."""


def compare(whole: RunDir, other: RunDir) -> Comparison:
    """The undisturbed run, and one that had a fault."""
    try:
        one, two = last_checkpoint(whole), last_checkpoint(other)
    except Damaged as error:
        return Comparison(False, error.message)
    rows, others = rows_of(whole), rows_of(other)
    if one is None and two is None and not rows and not others:
        return Comparison(None, "it leaves no checkpoint and no metrics")
    difference = difference_of_states(one, two) or difference_of_rows(rows, others)
    return Comparison(not difference, difference)


def last_checkpoint(run: RunDir) -> Checkpoint | None:
    """Read through and compared with its manifest."""
    steps = checkpoints.list_steps(run)
    return checkpoints.verify_checkpoint(run, steps[0]) if steps else None


# checkpoints --------------------------------------------------------------------------------------


def difference_of_states(one: Checkpoint | None, two: Checkpoint | None) -> str:
    if one is None or two is None:
        return "" if one is two else "only one of them has a checkpoint"
    if one.step != two.step:
        return f"the last checkpoint is of step {two.step}, not {one.step}"
    mine, theirs = one.manifest["files"], two.manifest["files"]
    if mine.keys() != theirs.keys():
        return f"{two.name} has other files"
    for name, expected in mine.items():
        same_bytes = expected["sha256"] == theirs[name]["sha256"]
        if not same_bytes and not same_content(one.file(name), two.file(name)):
            return f"{two.name}/{name} differs"
    return ""


def same_content(one: Path, two: Path) -> bool:
    """Of two files of `torch.save`; other files whose bytes differ are not the same."""
    if not (zipfile.is_zipfile(one) and zipfile.is_zipfile(two)):
        return False
    try:
        found, expected = content_of(one), content_of(two)
    except (pickle.UnpicklingError, LookupError, TypeError, ValueError, AttributeError, EOFError):
        return False  # no file of torch.save, or one that holds what nobody can compare
    return found is not None and found == expected


def content_of(path: Path) -> Any:
    """What `torch.save` has written, with the sum of its bytes in the place of each tensor; None
    for another zip."""
    with zipfile.ZipFile(path) as archive:
        pickles = [name for name in archive.namelist() if name.endswith("/data.pkl")]
        if len(pickles) != 1:
            return None
        with archive.open(pickles[0]) as file:
            return Inert(file, archive, pickles[0].rpartition("/")[0]).load()


class Made:
    """What stands for any object in a pickle: how it was made, and what was put into it."""

    def __new__(cls, *arguments: Any) -> "Made":
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
        return type(self) is type(other) and isinstance(other, Made) and self.held == other.held

    def __hash__(self) -> int:
        return hash(type(self))


@cache
def stand_in(name: str) -> type[Made]:
    """The one that stands for a class or a function of that name."""
    return type(name, (Made,), {})


class Storage(NamedTuple):
    """The memory that tensors are views of; what lies between them means nothing."""

    kind: type[Made]
    device: str
    elements: int
    data: bytes


def tensor(
    storage: Storage, offset: int, size: tuple[int, ...], stride: tuple[int, ...], *rest: Any
) -> list[Any]:
    """What a tensor is: its type and shape, and the sum of its own bytes."""
    width = len(storage.data) // max(1, storage.elements)
    reach = (
        1 + sum((length - 1) * far for length, far in zip(size, stride, strict=True))
        if all(size)
        else 0
    )
    view = memoryview(storage.data)[offset * width : (offset + reach) * width]
    return [storage.kind, storage.device, size, stride, rest, hashlib.sha256(view).hexdigest()]


class Inert(pickle.Unpickler):
    """Reads a pickle without importing or calling anything that it names."""

    def __init__(self, file: Any, archive: zipfile.ZipFile, folder: str) -> None:
        super().__init__(file)
        self._archive, self._folder = archive, folder
        self._read: dict[str, bytes] = {}

    def find_class(self, module: str, name: str) -> Any:
        return (
            tensor
            if (module, name) == ("torch._utils", "_rebuild_tensor_v2")
            else stand_in(f"{module}.{name}")
        )

    def persistent_load(self, place: Any) -> Storage:
        """("storage", type, key, device, number of elements); the key is a number in the order of
        writing."""
        _, kind, key, device, elements = place
        if key not in self._read:
            self._read[key] = self._archive.read(f"{self._folder}/data/{key}")
        return Storage(kind, device, elements, self._read[key])


# metrics ------------------------------------------------------------------------------------------


def rows_of(run: RunDir) -> list[Record]:
    """Every row without times and rates, which are never the same."""
    return [
        {name: value for name, value in row.items() if not is_time(name)} for row in run.history()
    ]


def is_time(name: str) -> bool:
    return name in TIMES or name.endswith(OF_TIME)


def difference_of_rows(rows: list[Record], others: list[Record]) -> str:
    for one, two in zip(rows, others, strict=False):
        if one != two:
            names = [name for name in {**one, **two} if one.get(name) != two.get(name)]
            return f"{names[0]} at step {one.get('step')}: {two.get(names[0])}, not {one.get(names[0])}"
    if len(rows) != len(others):
        return f"it has {len(others)} rows of metrics, not {len(rows)}"
    return ""
