"""HDF5 without its lock: samples in files of their own, or many in one file.

The HDF5 library lets one thread in at a time. A dataset that lies in the file as plain numbers is
therefore read past it: the library says once where the numbers begin, and `preadv` fetches them. All
others (in chunks, compressed, of another byte order, virtual) are read through h5py, one thread at
a time. Files are opened without HDF5's file locks, which fail on some parallel file systems.
"""

import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rampup.data.formats.columns import Array, Column, ColumnReader, Decoder
from rampup.data.formats.disk import OpenFile, Stamp, listed, stamp_of
from rampup.errors import RampupError, nearest

_library = threading.RLock()
"""Held while the HDF5 library works."""


def _renew_lock() -> None:
    """A forked process must not inherit a lock that a thread of its parent held."""
    global _library
    _library = threading.RLock()


os.register_at_fork(after_in_child=_renew_lock)


class Place(NamedTuple):
    """Where and how a dataset lies in its file."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    offset: int | None
    """The byte at which its numbers begin; None where only the library can read it."""
    chunk_rows: int
    """Rows in a chunk; 0 without chunks."""


class HDF5Files(ColumnReader):
    """Samples in HDF5 files, one in each: a column is a dataset of the file."""

    def __init__(self, paths: Iterable[str | Path], columns: Mapping[str, Column]) -> None:
        super().__init__(columns)
        self._paths = listed(paths, "HDF5Files")
        self._known: dict[int, tuple[Stamp, tuple[Place, ...]]] = {}

    def __len__(self) -> int:
        return len(self._paths)

    def files(self) -> list[Path]:
        return [Path(path) for path in self._paths]

    def _fill(self, indices: NDArray[np.int64], out: tuple[Array, ...]) -> None:
        for row, index in enumerate(indices.tolist()):
            file = OpenFile(self._paths[index])
            places = self._locate(index, file)
            for decoder, place, array in zip(self.decoders, places, out, strict=True):
                if place.offset is None:
                    _read_locked(file.path, decoder, place, array[row])
                else:
                    decoder.read(file, place.offset, array[row], place.dtype)

    def _locate(self, index: int, file: OpenFile) -> tuple[Place, ...]:
        """Return where the columns are; a file that has changed is looked at again."""
        stamp = file.stamp()
        known = self._known.get(index)
        if known is None or known[0] != stamp:
            places = locate(file, self.decoders)
            for decoder, place in zip(self.decoders, places, strict=True):
                if place.shape != decoder.shape:
                    raise _misshapen(file.path, decoder, place)
            known = self._known[index] = (stamp, places)
        return known[1]


def locate(file: OpenFile, decoders: Sequence[Decoder]) -> tuple[Place, ...]:
    """Ask the library where the columns lie in a file."""
    with opened(file.path) as content:
        places = tuple(_place(file.path, content, decoder) for decoder in decoders)
        if stamp_of(os.stat(file.path)) != file.stamp():
            raise RampupError(
                f"{file.path}: the file was replaced while it was read",
                "let nothing write into the data while a run reads it; then: rampup resume",
            )
    return places


@contextmanager
def opened(path: str) -> Iterator[Any]:
    """Open a file with h5py for a moment, alone in the library."""
    h5py = import_h5py()
    with _library:
        try:
            content = h5py.File(path, "r", locking=False)
        except OSError as error:
            raise _damaged(path, error) from error
        with content:
            yield content


def import_h5py() -> Any:
    """Return the module; only readers of HDF5 need it."""
    try:
        import h5py
    except ImportError as error:
        raise RampupError(
            f"HDF5 files need h5py, which can't be imported: {error}", "pip install 'rampup[data]'"
        ) from error
    return h5py


def _place(path: str, content: Any, decoder: Decoder) -> Place:
    dataset = _dataset(path, content, decoder.name)
    if dataset.dtype.kind not in "iufb" or dataset.shape is None:
        raise RampupError(
            f"{path}: dataset {decoder.name!r} has the type {dataset.dtype}, which is not a number",
            "name a dataset of numbers",
        )
    chunk_rows = dataset.chunks[0] if dataset.chunks else 0
    offset = dataset.id.get_offset() if _is_plain(dataset, decoder) else None
    return Place(dataset.shape, dataset.dtype, offset, chunk_rows)


def _dataset(path: str, content: Any, name: str) -> Any:
    h5py = import_h5py()
    try:
        found = content[name]
    except (KeyError, OSError):
        found = None
    if isinstance(found, h5py.Dataset):
        return found
    names: list[str] = []

    def note(each: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            names.append(each)

    content.visititems(note)
    raise RampupError(f"{path}: there is no dataset {name!r}", nearest(name, names))


def _is_plain(dataset: Any, decoder: Decoder) -> bool:
    """Whether the numbers of a dataset lie in the file one after the other, as numpy has them."""
    h5py = import_h5py()
    made = dataset.id.get_create_plist()
    if dataset.dtype.kind not in "iuf" or (decoder.declared and dataset.dtype != decoder.stored):
        return False
    if made.get_layout() != h5py.h5d.CONTIGUOUS:
        return False
    if made.get_nfilters() or made.get_external_count():
        return False
    return bool(dataset.id.get_type().equal(h5py.h5t.py_create(dataset.dtype)))


def _read_locked(path: str, decoder: Decoder, place: Place, out: Array) -> None:
    """Read a dataset through the library, and decode it without holding the lock."""
    stored = decoder.stored if decoder.declared else place.dtype
    direct = stored == decoder.dtype and not decoder.has_apply
    into = out if direct else np.empty(out.shape, stored)
    with opened(path) as content:
        dataset = _dataset(path, content, decoder.name)
        try:
            dataset.read_direct(into)
        except OSError as error:
            raise _damaged(path, error, decoder.name) from error
    decoder.decode(into, out)


def _misshapen(path: str, decoder: Decoder, place: Place) -> RampupError:
    return RampupError(
        f"{path}: dataset {decoder.name!r} has the shape {place.shape}, not {decoder.shape}",
        "give its Column the shape in the files; a file that differs from the others is left out",
    )


def _damaged(path: str, error: OSError, name: str = "") -> RampupError:
    what = f"dataset {name!r} can't be read" if name else "not a complete HDF5 file"
    return RampupError(
        f"{path}: {what}: {error}",
        "copy or download it again, or leave it out of the list of files",
    )
