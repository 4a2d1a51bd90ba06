"""Files of jets: HDF5 as the hls4ml jets are published, or as UCluster prepares them.

A published file has `jetConstituentList` and `jets`, one of UCluster `data`, `label` and `pid`. The
recipe asks `check_jets` before a run is submitted and `read_jets` when it starts; prepare.py makes
the second layout of the first. numpy and h5py are imported only where a file is opened.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rampup.errors import Refused, nearest

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from rampup.datasets.jets.features import Jets

SUFFIXES = (".h5", ".hdf5")
TRAIN, VALIDATION, THIRD = PARTS = ("train", "validation", "third")
WORDS = {TRAIN: ("train",), VALIDATION: ("validation", "test"), THIRD: ("third", "eval")}
"""How the names of the files or folders of each part begin."""
PUBLISHED = ("jetConstituentList", "jets")
PREPARED = ("data", "label", "pid")
MASSES = "masses"
"""What a prepared file may have besides."""
GET_H5PY = "pip install 'rampup[data]'"
LAYOUTS = f"a file of jets has {' and '.join(PUBLISHED)}, or {', '.join(PREPARED)}"


def mass_bin_edges() -> tuple[float, ...]:
    """Return the edges of the fixed mass bins in GeV."""
    from rampup.datasets.jets.features import FIXED_EDGES

    return tuple(FIXED_EDGES.tolist())


def fixed_mass_bins(mass: "NDArray[Any]") -> "NDArray[np.int64]":
    """Return the fixed bin of each mass: the same number for the same mass in every file."""
    from rampup.datasets.jets.features import fixed_bins

    return fixed_bins(mass)


def check_jets(path: Path) -> None:
    """Refuse what can't be a file or a folder of jets, with what to type. No file is opened."""
    if not path.exists():
        raise Refused(
            f"jets: there is no {path}", "the jets that come with rampup are used without data="
        )
    if path.is_dir() and not list_files(path):
        raise Refused(
            f"jets: {path} has no file *.h5", "data= is a file of jets, or a folder of such files"
        )
    if path.is_file() and path.suffix not in SUFFIXES:
        raise Refused(f"jets: {path.name} is not an HDF5 file", "data=FILE.h5")


def list_files(path: Path) -> list[Path]:
    """Return the files of a folder and of its folders in the order of their names, or the file."""
    if not path.is_dir():
        return [path]
    return sorted(found for found in path.rglob("*") if found.suffix in SUFFIXES)


def list_jet_files(path: str | Path) -> dict[str, list[Path]]:
    """Return the files by their part: train, validation, third.

    Files belong to a part by the beginning of their name or of their folder's. Where a part is
    missing there are no parts, and all files are those of `train`, to be divided by the recipe.
    """
    path = Path(path)
    check_jets(path)
    files = list_files(path)
    found: dict[str, list[Path]] = {part: [] for part in PARTS}
    for file in files:
        first = file.relative_to(path).parts[0] if path.is_dir() else ""
        for part, words in WORDS.items():
            if first.startswith(words):
                found[part].append(file)
    if all(found.values()):
        return found
    return {TRAIN: files, VALIDATION: [], THIRD: []}


def read_jets(path: "str | Path | Iterable[Path] | None" = None) -> "Jets":
    """Return the jets of files, of a folder of files, or those that come with rampup.

    Files may have different lengths and layouts. Jets other than W, Z and top and those without
    particles are left out, and of published files those below 10 or above 200 GeV.
    """
    if path is None:
        from rampup.datasets.jets.shipped import read_shipped

        return read_shipped()
    from rampup.datasets.jets.features import join

    if isinstance(path, str | Path):
        check_jets(Path(path))
        path = list_files(Path(path))
    found = [read_file(file) for file in path]
    if not sum(map(len, found)):
        raise Refused(
            "there is no W, Z or top jet between 10 and 200 GeV in the files of jets",
            "look at them: h5dump -H FILE",
        )
    return join(found)


def read_file(path: Path) -> "Jets":
    """Return the jets of one file that are of use."""
    from rampup.datasets.jets.layouts import read_prepared, read_published

    with opened(path) as content:
        if all(name in content for name in PUBLISHED):
            return read_published(path, content)
        if all(name in content for name in PREPARED):
            return read_prepared(path, content)
        names = [str(name) for name in content]
        raise Refused(f"{path} has {', '.join(names) or 'nothing'}", LAYOUTS)


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """Open an HDF5 file for reading; a damaged one is named, also when its damage shows later."""
    try:
        import h5py
    except ImportError as error:
        raise Refused(f"files of jets are HDF5, which needs h5py: {error}", GET_H5PY) from None
    try:
        with h5py.File(path, "r", locking=False) as content:
            yield content
    except OSError as error:
        raise Refused(
            f"{path} is not a complete HDF5 file: {error}", "copy it again, or take it away"
        ) from None


def find_column(names: Any, wanted: str, place: int) -> int:
    """Return where a column is: by the names that the file has, or where it always is."""
    if names is None:
        return place
    known = [name.decode() if isinstance(name, bytes) else str(name) for name in names]
    if wanted not in known:
        raise Refused(f"there is no column {wanted}", nearest(wanted, known))
    return known.index(wanted)
