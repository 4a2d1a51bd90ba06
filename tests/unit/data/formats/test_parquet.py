"""Parquet files as pyarrow writes them: row groups, lists with the shape of a column."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from rampup.data.formats.columns import Column
from rampup.data.formats.parquet import ParquetRows
from rampup.errors import RampupError
from tests.unit.data.formats.reading import read, read_by_threads

SHAPE = (3, 4)
COUNT = 100
DRAW = np.random.default_rng(4)
POINTS = DRAW.normal(size=(COUNT, *SHAPE)).astype(np.float32)
LABELS = DRAW.integers(0, 5, COUNT)
COLUMNS = {"points": Column(SHAPE, subtract=1), "label": Column((), np.int64)}


def as_lists(kind: str, values: np.ndarray) -> Any:
    flat = pyarrow.array(values.reshape(-1))
    if kind == "fixed":
        return pyarrow.FixedSizeListArray.from_arrays(flat, 12)
    if kind == "nested":
        rows = pyarrow.ListArray.from_arrays(range(0, flat.__len__() + 1, 4), flat)
        return pyarrow.ListArray.from_arrays(range(0, len(rows) + 1, 3), rows)
    made = pyarrow.LargeListArray if kind == "large" else pyarrow.ListArray
    return made.from_arrays(range(0, len(flat) + 1, 12), flat)


def write(folder: Path, kind: str = "list", **options: Any) -> list[Path]:
    for number, rows in enumerate(np.array_split(np.arange(COUNT), 3)):
        columns = {
            "points": as_lists(kind, POINTS[rows]),
            "label": LABELS[rows],
            "text": ["a"] * len(rows),
        }
        table = pyarrow.table(columns)
        parquet.write_table(table, folder / f"{number}.parquet", row_group_size=10, **options)
    return sorted(folder.glob("*.parquet"))


@pytest.mark.parametrize("kind", ["list", "large", "fixed", "nested"])
@pytest.mark.parametrize("compression", ["snappy", "none", "zstd"])
def test_rows_are_read_in_any_order(kind: str, compression: str, tmp_path: Path) -> None:
    reader = ParquetRows(write(tmp_path, kind, compression=compression), COLUMNS)
    assert len(reader) == COUNT and len(reader.files()) == 3
    for order in (range(COUNT), [99, 0, 34], [], [5, 5], DRAW.permutation(COUNT)):
        points, labels = read(reader, order)
        assert np.array_equal(points, POINTS[list(order)] - 1)
        assert np.array_equal(labels, LABELS[list(order)])
    read_by_threads(reader, rounds=4)


def test_blocks_are_row_groups(tmp_path: Path) -> None:
    blocks = ParquetRows(write(tmp_path), COLUMNS).blocks()
    assert blocks is not None
    assert blocks.starts.tolist() == [0, 10, 20, 30, 34, 44, 54, 64, 67, 77, 87, 97]


def refusal(reader: ParquetRows) -> RampupError:
    with pytest.raises(RampupError) as caught:
        read(reader, range(len(reader)))
    assert caught.value.hint
    return caught.value


def test_a_file_cut_anywhere_or_damaged_is_named(tmp_path: Path) -> None:
    paths = write(tmp_path)
    whole = paths[1].read_bytes()
    for size in range(0, len(whole), 97):
        paths[1].write_bytes(whole[:size])
        assert str(paths[1]) in refusal(ParquetRows(paths, COLUMNS)).message
    paths[1].write_bytes(whole)
    reader = ParquetRows(paths, COLUMNS)
    read(reader, range(COUNT))
    paths[1].write_bytes(whole[: len(whole) // 2])
    assert str(paths[1]) in refusal(reader).message
    paths[1].write_bytes(paths[0].read_bytes())
    assert "changed" in refusal(reader).message
    paths[1].unlink()
    assert "not there" in refusal(reader).message


def test_columns_that_do_not_fit_are_named(tmp_path: Path) -> None:
    paths = write(tmp_path)

    def error(name: str, column: Column) -> RampupError:
        return refusal(ParquetRows(paths, {name: column}))

    assert "did you mean points?" in error("point", Column(SHAPE)).hint
    assert "has 12 numbers in a row, not 9" in error("points", Column((3, 3))).message
    assert "type string, which is not a number" in error("text", Column(())).message


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([[1.0, 2.0], [3.0], [4.0, 5.0, 6.0]], "from 1 to 3 numbers"),
        ([[1.0, 2.0], None, [3.0, 4.0]], "from 2 to 2 numbers|empty"),
        ([[1.0, 2.0], [3.0, None], [3.0, 4.0]], "1 empty places"),
    ],
)
def test_rows_that_differ_or_are_empty_are_named(values: Any, message: str, tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.table({"x": values}), path)
    with pytest.raises(RampupError, match=message):
        read(ParquetRows([path], {"x": Column((2,))}), range(3))
