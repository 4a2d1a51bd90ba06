"""Arrays as numpy saves them: samples in `.npy` files of their own, or many as rows of one.

A file is opened, its header is read, and from then on its numbers are fetched with `preadv`: a
memory map would end the process when the file is cut off meanwhile. A file with another suffix than
`.npy` is taken for a raw memory map, numbers and nothing else.
"""

import io
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rampup.data.formats.blocks import BLOCK_BYTES, CACHE_MB, Arrays, BlockReader
from rampup.data.formats.columns import Array, Column, ColumnReader, Decoder
from rampup.data.formats.disk import OpenFile, OpenFiles, Stamp, listed, truncated
from rampup.errors import RampupError, nearest

MOST_HEADER_BYTES = 1 << 14
Paths = Mapping[str, Iterable[str | Path]]


class _Header(NamedTuple):
    stamp: Stamp
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    offset: int


class NpyFiles(ColumnReader):
    """Samples in `.npy` files, one in each; each column has a list of files, in the same order."""

    def __init__(self, paths: Paths, columns: Mapping[str, Column]) -> None:
        super().__init__(columns)
        self._paths = _listed_by_column(paths, columns, "NpyFiles")

    def __len__(self) -> int:
        return len(self._paths[0])

    def files(self) -> list[Path]:
        return [Path(path) for paths in self._paths for path in paths]

    def _fill(
        self, indices: NDArray[np.int64], decoders: tuple[Decoder, ...], out: tuple[Array, ...]
    ) -> None:
        for paths, decoder, array in zip(self._paths, decoders, out, strict=True):
            for row, index in enumerate(indices.tolist()):
                file = OpenFile(self.local_path(paths[index]))
                header = _read_header(file, decoder)
                if header.shape != decoder.shape:
                    raise _misshapen(file.path, decoder, header, rows=False)
                decoder.read(file, header.offset, array[row, ...], header.dtype)


class NpyRows(BlockReader):
    """Many samples in each file: a sample is one row of the arrays.

    Each column has its files, one or several, and the rows of all columns belong together: file by
    file they have equally many. About a megabyte is read at once; `block_rows` overrides it, and
    with 1 every sample is read alone.
    """

    def __init__(
        self,
        paths: Paths,
        columns: Mapping[str, Column],
        block_rows: int | None = None,
        cache_mb: int = CACHE_MB,
    ) -> None:
        super().__init__(columns, cache_mb)
        if block_rows is not None and block_rows < 1:
            raise RampupError(
                f"block_rows={block_rows} is not a number of rows", "give it 1 or more"
            )
        self._paths = _listed_by_column(paths, columns, "NpyRows")
        self._block_rows = block_rows
        self._files = OpenFiles()
        self._headers: dict[str, _Header] = {}
        self._pieces: list[tuple[int, int, int]] = []
        """Of each block: the number of its file, its first row and the row after its last."""

    def files(self) -> list[Path]:
        return [Path(path) for paths in self._paths for path in paths]

    def _survey(self) -> list[int]:
        self._pieces = []
        step = self._block_rows or max(1, BLOCK_BYTES // max(1, self.kept_bytes))
        for number in range(len(self._paths[0])):
            rows = self._count(number)
            for begin in range(0, rows, step):
                self._pieces.append((number, begin, min(begin + step, rows)))
        return [end - begin for _, begin, end in self._pieces]

    def _count(self, number: int) -> int:
        """Return the rows of one file of each column."""
        counts: dict[str, int] = {}
        for paths, decoder in zip(self._paths, self.decoders, strict=True):
            file = OpenFile(self.local_path(paths[number]))
            header = _read_header(file, decoder, rows=True)
            counts[paths[number]] = header.shape[0]
        if len(set(counts.values())) > 1:
            found = ", ".join(f"{path} has {count}" for path, count in counts.items())
            raise RampupError(
                f"files that belong together have different numbers of rows: {found}",
                "list the files of each column in the same order",
            )
        return next(iter(counts.values()))

    def _read_block(self, block: int, decoders: tuple[Decoder, ...], out: Arrays) -> None:
        number, begin, end = self._pieces[block]
        self._read_rows(number, begin, end, decoders, out)

    def _read_run(self, block: int, begin: int, decoders: tuple[Decoder, ...], out: Arrays) -> bool:
        number, first, _ = self._pieces[block]
        self._read_rows(number, first + begin, first + begin + len(out[0]), decoders, out)
        return True

    def _read_rows(
        self, number: int, begin: int, end: int, decoders: tuple[Decoder, ...], out: Arrays
    ) -> None:
        for paths, decoder, array in zip(self._paths, decoders, out, strict=True):
            file = self._files.get(self.local_path(paths[number]))
            header = self._headers.get(file.path)
            if header is None or header.stamp != file.stamp():
                header = self._headers[file.path] = _read_header(file, decoder, rows=True)
            if header.shape[0] < end:
                detail = f"it has {header.shape[0]} rows, and row {end - 1} was there before"
                raise truncated(file.path, detail)
            at = header.offset + begin * decoder.size * header.dtype.itemsize
            decoder.read(file, at, array, header.dtype)


def _listed_by_column(
    paths: Paths, columns: Mapping[str, Column], what: str
) -> tuple[list[str], ...]:
    """Return the files of each column, in the order of the columns."""
    for name in columns:
        if name not in paths:
            raise RampupError(f"{what}: column {name!r} has no files", nearest(name, paths))
    for name in paths:
        if name not in columns:
            raise RampupError(f"{what}: files {name!r} have no column", nearest(name, columns))
    found = tuple(listed(paths[name], f"{what}: column {name!r}") for name in columns)
    counts = {name: len(each) for name, each in zip(columns, found, strict=True)}
    if len(set(counts.values())) > 1:
        listing = ", ".join(f"{name!r} has {count}" for name, count in counts.items())
        raise RampupError(
            f"{what}: the columns have different numbers of files: {listing}",
            "list the files of each column in the same order",
        )
    return found


def _read_header(file: OpenFile, decoder: Decoder, rows: bool = False) -> _Header:
    """Return what a file has, checked against the column and the size of the file."""
    is_npy = file.path.endswith(".npy")
    header = _read_npy(file) if is_npy else _assume_raw(file, decoder, rows)
    size = int(np.prod(header.shape, dtype=object)) * header.dtype.itemsize
    if header.offset + size > header.stamp[1]:
        detail = f"it has {header.stamp[1]} bytes, and its header says {header.offset + size}"
        raise truncated(file.path, detail)
    if rows and (not header.shape or header.shape[1:] != decoder.shape):
        raise _misshapen(file.path, decoder, header, rows)
    return header


def _read_npy(file: OpenFile) -> _Header:
    stamp = file.stamp()
    form = np.lib.format
    start = bytearray(min(MOST_HEADER_BYTES, stamp[1]))
    file.read(memoryview(start), 0)
    content = io.BytesIO(start)
    try:
        is_old = form.read_magic(content) == (1, 0)
        read = form.read_array_header_1_0 if is_old else form.read_array_header_2_0
        shape, is_fortran, dtype = read(content)
    except (ValueError, SyntaxError, UnicodeError) as error:
        reason = str(error).splitlines()[0]
        raise RampupError(
            f"{file.path}: not a complete .npy file: {reason}",
            "copy or download it again, or leave it out of the list of files",
        ) from error
    if dtype.kind not in "iufb" or (is_fortran and len(shape) > 1):
        what = "in the order of Fortran" if is_fortran else f"of the type {dtype}"
        raise RampupError(
            f"{file.path}: its array is {what}, which can't be read in pieces",
            "save it again: numpy.save(path, numpy.ascontiguousarray(array))",
        )
    return _Header(stamp, tuple(shape), dtype, content.tell())


def _assume_raw(file: OpenFile, decoder: Decoder, rows: bool) -> _Header:
    """Return what a file without a header holds, if its size fits the column."""
    stamp = file.stamp()
    count = stamp[1] // max(1, decoder.stored_bytes)
    if stamp[1] % max(1, decoder.stored_bytes) or (not rows and count != 1):
        raise RampupError(
            f"{file.path}: {stamp[1]} bytes are not whole samples of {decoder.stored_bytes}, "
            f"which column {decoder.name!r} has",
            "a raw file holds numbers of stored=, or dtype=, and nothing else",
        )
    shape = (count, *decoder.shape) if rows else decoder.shape
    return _Header(stamp, shape, decoder.stored, 0)


def _misshapen(path: str, decoder: Decoder, header: _Header, rows: bool) -> RampupError:
    wanted = ", ".join(("rows", *map(str, decoder.shape))) if rows else str(decoder.shape)[1:-1]
    return RampupError(
        f"{path}: the array has the shape {header.shape}, not ({wanted})",
        "NpyFiles has one sample in each file, NpyRows many; a Column has the shape of one",
    )
