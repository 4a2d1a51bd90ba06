"""HDF5 without its lock: samples in files of their own, or many in one file.

The HDF5 library lets one thread in at a time. A dataset that lies in the file as plain numbers is
therefore read past it: the library says once where the numbers begin, and `preadv` fetches them. All
others (in chunks, compressed, of another byte order, virtual) are read through h5py, one thread at
a time. Files are opened without HDF5's file locks, which fail on some parallel file systems.
"""

import math
import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rampup.data.formats.blocks import BLOCK_BYTES, CACHE_MB, Arrays, BlockReader
from rampup.data.formats.chunks import Chunks, describe_chunks, fetch_chunks, inflate_chunks
from rampup.data.formats.columns import Array, Column, ColumnReader, Decoder
from rampup.data.formats.disk import OpenFile, OpenFiles, Stamp, changed, listed, stamp_of
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
    chunks: Chunks | None
    """How its chunks can be inflated without the library; None where it must do that."""


class HDF5Files(ColumnReader):
    """Samples in HDF5 files, one in each: a column is a dataset of the file."""

    def __init__(self, paths: Iterable[str | Path], columns: Mapping[str, Column]) -> None:
        super().__init__(columns)
        self._paths = listed(paths, "HDF5Files")
        self._known: dict[int, tuple[Stamp, tuple[Place, ...]]] = {}
        self._layouts: dict[tuple[Place, ...], tuple[Place, ...]] = {}
        """Of 100,000 files most are alike, and what they have is remembered once."""

    def __len__(self) -> int:
        return len(self._paths)

    def files(self) -> list[Path]:
        return [Path(path) for path in self._paths]

    def _fill(
        self, indices: NDArray[np.int64], decoders: tuple[Decoder, ...], out: tuple[Array, ...]
    ) -> None:
        for row, index in enumerate(indices.tolist()):
            file = OpenFile(self.local_path(self._paths[index]))
            places = self._locate(index, file)
            for decoder, place, array in zip(decoders, places, out, strict=True):
                if place.offset is None:
                    _read_rows(file, decoder, place, array[row, ...])
                else:
                    decoder.read(file, place.offset, array[row, ...], place.dtype)

    def _locate(self, index: int, file: OpenFile) -> tuple[Place, ...]:
        """Return where the columns are; a file that has changed is looked at again."""
        stamp = file.stamp()
        known = self._known.get(index)
        if known is None or known[0] != stamp:
            places = locate(file, self.decoders)
            for decoder, place in zip(self.decoders, places, strict=True):
                if place.shape != decoder.shape:
                    raise _misshapen(file.path, decoder, place)
            same = self._layouts.setdefault(places, places)
            known = self._known[index] = (stamp, same)
        return known[1]


def locate(file: OpenFile, decoders: Sequence[Decoder]) -> tuple[Place, ...]:
    """Ask the library where the columns lie in a file."""
    with opened(file.path) as content:
        places = tuple(_place(file.path, content, decoder) for decoder in decoders)
        if stamp_of(os.stat(file.path)) != file.stamp():
            raise changed(file.path)
    return places


class HDF5Rows(BlockReader):
    """Many samples in each HDF5 file: a sample is one row of the datasets.

    Rows are read in blocks: whole chunks of the dataset with the largest rows, or about a megabyte
    where there are no chunks. `block_rows` overrides it; with 1 every sample is read alone.
    """

    def __init__(
        self,
        paths: Iterable[str | Path],
        columns: Mapping[str, Column],
        block_rows: int | None = None,
        cache_mb: int = CACHE_MB,
    ) -> None:
        super().__init__(columns, cache_mb)
        if block_rows is not None and block_rows < 1:
            raise RampupError(
                f"block_rows={block_rows} is not a number of rows", "give it 1 or more"
            )
        self._paths = listed(paths, "HDF5Rows")
        self._block_rows = block_rows
        self._files = OpenFiles()
        self._known: dict[int, tuple[Stamp, tuple[Place, ...]]] = {}
        self._pieces: list[tuple[int, int, int]] = []
        """Of each block: the number of its file, its first row and the row after its last."""

    def files(self) -> list[Path]:
        return [Path(path) for path in self._paths]

    def _survey(self) -> list[int]:
        self._pieces = []
        for number, path in enumerate(self._paths):
            file = OpenFile(self.local_path(path))
            places = self._look_at(number, file)
            rows, step = places[0].shape[0], self._rows_at_once(places)
            for begin in range(0, rows, step):
                self._pieces.append((number, begin, min(begin + step, rows)))
        return [end - begin for _, begin, end in self._pieces]

    def _look_at(self, number: int, file: OpenFile) -> tuple[Place, ...]:
        places = locate(file, self.decoders)
        for decoder, place in zip(self.decoders, places, strict=True):
            rows = places[0].shape[:1]
            if not rows or place.shape != rows + decoder.shape:
                raise _misshapen(file.path, decoder, place, rows=True)
        self._known[number] = (file.stamp(), places)
        return places

    def _rows_at_once(self, places: tuple[Place, ...]) -> int:
        if self._block_rows is not None:
            return self._block_rows
        sizes = [math.prod(place.shape[1:]) * place.dtype.itemsize for place in places]
        chunk_rows = max(1, places[sizes.index(max(sizes))].chunk_rows)
        return chunk_rows * max(1, BLOCK_BYTES // max(1, chunk_rows * sum(sizes)))

    def _read_block(self, block: int, decoders: tuple[Decoder, ...], out: Arrays) -> None:
        number, begin, end = self._pieces[block]
        self._read_rows(number, begin, end, decoders, out)

    def _read_run(self, block: int, begin: int, decoders: tuple[Decoder, ...], out: Arrays) -> bool:
        number, first, _ = self._pieces[block]
        if any(place.offset is None for place in self._known[number][1]):
            return False
        self._read_rows(number, first + begin, first + begin + len(out[0]), decoders, out)
        return True

    def _read_rows(
        self, number: int, begin: int, end: int, decoders: tuple[Decoder, ...], out: Arrays
    ) -> None:
        file = self._files.get(self.local_path(self._paths[number]))
        stamp, places = self._known[number]
        if file.stamp() != stamp:
            rows = places[0].shape[0]
            places = self._look_at(number, file)
            if places[0].shape[0] != rows:
                raise changed(file.path)
        for decoder, place, array in zip(decoders, places, out, strict=True):
            if place.offset is None:
                _read_rows(file, decoder, place, array, (begin, end))
            else:
                row_bytes = decoder.size * place.dtype.itemsize
                decoder.read(file, place.offset + begin * row_bytes, array, place.dtype)


@contextmanager
def opened(path: str) -> Iterator[Any]:
    """Open a file with h5py for a moment, alone in the library.

    It never stays open: your own code could then not open it with h5py, or write it again.
    """
    h5py = import_h5py()
    with _library:
        try:
            content = h5py.File(path, "r", locking=False)
        except OSError as error:
            if "locking flag" not in str(error):
                raise _damaged(path, error) from error
            content = h5py.File(path, "r")  # your own code has it open, with locks
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
    chunks = describe_chunks(dataset, import_h5py().h5z)
    return Place(dataset.shape, dataset.dtype, offset, chunk_rows, chunks)


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


def _read_rows(
    file: OpenFile,
    decoder: Decoder,
    place: Place,
    out: Array,
    rows: tuple[int, int] | None = None,
) -> None:
    """Read a dataset, or some rows of it, and decode it without holding the library's lock."""
    into = _landing(decoder, place, out)
    begin, end = rows or (0, place.shape[0] if place.shape else 0)
    found = []
    with opened(file.path) as content:
        dataset = _dataset(file.path, content, decoder.name)
        if place.chunks is not None:
            found = fetch_chunks(dataset, place.chunks, begin, end)
        if not found:
            _read_into(file.path, dataset, into, rows)
    if place.chunks and found and not inflate_chunks(found, place.chunks, begin, into):
        with opened(file.path) as content:
            _read_into(file.path, _dataset(file.path, content, decoder.name), into, rows)
    decoder.decode(into, out, file.path)


def _landing(decoder: Decoder, place: Place, out: Array) -> Array:
    """Return where the library puts the numbers: at once to their place, if they are as wanted."""
    stored = decoder.stored if decoder.declared else place.dtype
    if stored == decoder.dtype and not decoder.has_apply:
        return out
    return np.empty(out.shape, stored)


def _read_into(path: str, dataset: Any, into: Array, rows: tuple[int, int] | None) -> None:
    try:
        dataset.read_direct(into, None if rows is None else slice(*rows))
    except OSError as error:
        raise _damaged(path, error, dataset.name.lstrip("/")) from error


def _misshapen(path: str, decoder: Decoder, place: Place, rows: bool = False) -> RampupError:
    wanted = ", ".join(("rows", *map(str, decoder.shape))) if rows else str(decoder.shape)[1:-1]
    hint = "give its Column the shape in the files; leave out a file that differs from the others"
    if place.shape == decoder.shape:
        hint = "one sample in each file: HDF5Files"
    elif place.shape[1:] == decoder.shape:
        hint = "many samples in each file: HDF5Rows; its datasets have equally many rows"
    return RampupError(
        f"{path}: dataset {decoder.name!r} has the shape {place.shape}, not ({wanted})", hint
    )


def _damaged(path: str, error: OSError, name: str = "") -> RampupError:
    what = f"dataset {name!r} can't be read" if name else "not a complete HDF5 file"
    return RampupError(
        f"{path}: {what}: {error}",
        "copy or download it again, or leave it out of the list of files",
    )
