"""Samples in Parquet files: a sample is a row, and a row group is read at once.

A column of the file holds a number in each row, or a list of numbers that has the column's shape.
pyarrow reads it without holding the interpreter.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from rampup.data.formats.blocks import CACHE_MB, Arrays, BlockReader
from rampup.data.formats.columns import Array, Column, Decoder
from rampup.data.formats.disk import changed, listed, unreadable
from rampup.errors import RampupError, nearest


class ParquetRows(BlockReader):
    """Many samples in each Parquet file: a sample is one row."""

    def __init__(
        self,
        paths: Iterable[str | Path],
        columns: Mapping[str, Column],
        cache_mb: int = CACHE_MB,
    ) -> None:
        super().__init__(columns, cache_mb)
        self._paths = listed(paths, "ParquetRows")
        self._pieces: list[tuple[int, int]] = []
        """Of each block: the number of its file, and of its row group."""

    def files(self) -> list[Path]:
        return [Path(path) for path in self._paths]

    def _survey(self) -> list[int]:
        self._pieces, counts = [], []
        for number, path in enumerate(self._paths):
            with _opened(self.local_path(path)) as content:
                names = content.schema_arrow.names
                for decoder in self.decoders:
                    if decoder.name not in names:
                        raise RampupError(
                            f"{path}: there is no column {decoder.name!r}",
                            nearest(decoder.name, names),
                        )
                for group in range(content.metadata.num_row_groups):
                    self._pieces.append((number, group))
                    counts.append(content.metadata.row_group(group).num_rows)
        return counts

    def _read_block(self, block: int, decoders: tuple[Decoder, ...], out: Arrays) -> None:
        number, group = self._pieces[block]
        path = self.local_path(self._paths[number])
        names = [decoder.name for decoder in decoders]
        with _opened(path) as content:
            if group >= content.metadata.num_row_groups:
                raise changed(path)
            table = content.read_row_group(group, columns=names, use_threads=False)
        for decoder, array in zip(decoders, out, strict=True):
            if len(table) != len(array):
                raise changed(path)
            numbers = _to_numpy(path, decoder, table.column(decoder.name))
            if numbers.size != array.size:
                raise RampupError(
                    f"{path}: column {decoder.name!r} has {numbers.size // len(array)} numbers "
                    f"in a row, not {decoder.size} for the shape {decoder.shape}",
                    "give its Column the shape that the lists in the file have",
                )
            decoder.decode(numbers, array, path)


@contextmanager
def _opened(path: str) -> Iterator[Any]:
    """Open a file for a moment; what goes wrong with it is named."""
    try:
        from pyarrow import lib, parquet
    except ImportError as error:
        raise RampupError(
            f"Parquet files need pyarrow, which can't be imported: {error}",
            "pip install 'rampup[data]'",
        ) from error
    try:
        with parquet.ParquetFile(path) as content:
            yield content
    except FileNotFoundError as error:
        raise unreadable(path, error) from error
    except (OSError, lib.ArrowException) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise RampupError(
            f"{path}: not a complete Parquet file: {reason}",
            "copy or download it again, or leave it out of the list of files",
        ) from error


def _to_numpy(path: str, decoder: Decoder, values: Any) -> Array:
    """Return all numbers of a column of a row group, without the borders of its lists."""
    from pyarrow import compute, types

    array = values.combine_chunks()
    while types.is_list(array.type) or types.is_large_list(array.type) or _is_fixed(array.type):
        lengths = compute.min_max(compute.list_value_length(array)).as_py()
        if array.null_count or lengths["min"] != lengths["max"]:
            raise RampupError(
                f"{path}: the lists in column {decoder.name!r} have from {lengths['min'] or 0} to "
                f"{lengths['max'] or 0} numbers",
                "write lists of one length, padded where they are shorter",
            )
        array = array.flatten()
    if array.null_count:
        raise RampupError(
            f"{path}: column {decoder.name!r} has {array.null_count} empty places",
            "fill them before you train: for example pandas.DataFrame.fillna",
        )
    numbers = array.to_numpy(zero_copy_only=False)
    if numbers.dtype.kind not in "iufb":
        raise RampupError(
            f"{path}: column {decoder.name!r} has the type {array.type}, which is not a number",
            "name a column of numbers, or of lists of numbers",
        )
    return np.asarray(numbers)


def _is_fixed(kind: Any) -> bool:
    from pyarrow import types

    return bool(types.is_fixed_size_list(kind))
