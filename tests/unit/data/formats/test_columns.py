"""From the numbers of a file to those of the model: scaled as the formulas say, in pieces."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rampup.data.formats import columns
from rampup.data.formats.columns import Column, Decoder
from rampup.data.formats.hdf5 import import_h5py
from rampup.data.formats.npy import NpyRows
from rampup.errors import RampupError
from tests.unit.data.formats.reading import read

DRAW = np.random.default_rng(7)


def decoded(column: Column, stored: np.ndarray) -> np.ndarray:
    kind = np.dtype(column.dtype)
    out = np.full(stored.shape, np.nan if kind.kind == "f" else 1, kind)
    Decoder("x", column).decode(stored, out)
    return out


@pytest.fixture(params=[64, 1000, 1 << 18])
def piece_bytes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Pieces that end in the middle of samples, of rows and of channels, and only one piece."""
    monkeypatch.setattr(columns, "PIECE_BYTES", request.param)
    monkeypatch.setattr(columns, "TILE", max(request.param // 8, 1))
    return int(request.param)


@pytest.mark.parametrize("shape", [(5, 7, 3), (16,), (4, 4, 16), (), (31, 1)])
def test_a_value_per_channel_is_applied_as_numpy_would(
    shape: tuple[int, ...], piece_bytes: int
) -> None:
    channels = shape[-1] if shape else 1
    low = DRAW.random(channels).astype(np.float32)
    span = DRAW.random(channels).astype(np.float32) + 1
    stored = DRAW.random((9, *shape)).astype(np.float32)
    low, span = (low, span) if shape else (low[0], span[0])
    found = decoded(Column(shape, subtract=low, divide=span), stored)
    assert np.array_equal(found, (stored - low) / span)


@pytest.mark.parametrize("values", [(5, 7, 3), (5, 1, 1), (7, 1), (1, 1, 3), (1,)])
def test_values_may_have_any_shape_that_broadcasts(
    values: tuple[int, ...], piece_bytes: int
) -> None:
    mean, scale = DRAW.random(values) + 1, DRAW.random(values) + 1
    stored = DRAW.random((4, 5, 7, 3)).astype(np.float32)
    found = decoded(Column((5, 7, 3), subtract=mean, divide=scale), stored)
    assert np.array_equal(found, (stored - mean.astype(np.float32)) / scale.astype(np.float32))


def test_counts_become_logarithms_and_are_standardised_after_that(piece_bytes: int) -> None:
    counts = DRAW.poisson(3, (3, 8, 8, 4)).astype(np.int16)
    column = Column((8, 8, 4), stored="<i2", log1p=True, subtract=0.8, divide=0.5)
    wanted = (np.log1p(counts.astype(np.float64)) - 0.8) / 0.5
    assert np.allclose(decoded(column, counts), wanted, atol=1e-6)


def test_small_numbers_keep_their_digits_in_log1p() -> None:
    small = np.full((1, 4), 1e-6, np.float32)
    assert np.allclose(decoded(Column((4,), log1p=True), small), 1e-6, rtol=1e-6, atol=0)


@pytest.mark.parametrize("stored", [">f4", "<f8", "u1", ">i2"])
def test_other_types_and_byte_orders_are_converted(stored: str) -> None:
    numbers = DRAW.integers(0, 100, (6, 10)).astype(stored)
    found = decoded(Column((10,), stored=stored), numbers)
    assert found.dtype == np.float32 and np.array_equal(found, numbers.astype(np.float32))


@pytest.mark.parametrize(
    ("stored", "dtype", "bad"),
    [("f4", "i8", 1.5), ("f4", "i8", np.nan), ("i8", "u1", 300), ("i8", "u1", -1), ("u1", "?", 2)],
)
def test_a_number_that_an_integer_can_not_be_is_named(
    stored: str, dtype: str, bad: float, tmp_path: Path
) -> None:
    column = Column((4,), dtype, stored=stored)
    numbers = np.array([[0, 1, 1, 0]] * 3, stored)
    found = decoded(column, numbers)
    assert found.dtype == dtype and found.tolist() == numbers.astype(dtype).tolist()
    numbers[2, 1] = bad
    with pytest.raises(RampupError, match=f"^column 'x' has {bad}, which does not fit into"):
        decoded(column, numbers)
    path = tmp_path / "rows.raw"
    numbers.tofile(path)
    reader = NpyRows({"x": [path]}, {"x": column}, block_rows=1)
    assert read(reader, [1])[0].tolist() == [[0, 1, 1, 0]]
    with pytest.raises(RampupError, match=f"^{path}: column 'x' has {bad}") as caught:
        read(reader, [2])
    assert "dtype" in caught.value.hint


def test_a_function_of_your_own_gets_one_sample_at_a_time() -> None:
    def divide_by_mean(stored: Any, out: Any) -> None:
        assert stored.shape == (2, 3) and stored.dtype == np.uint8
        np.divide(stored, stored.mean(), out=out)

    stored = DRAW.integers(1, 9, (5, 2, 3)).astype(np.uint8)
    found = decoded(Column((2, 3), stored=np.uint8, apply=divide_by_mean), stored)
    wanted = stored / stored.mean(axis=(1, 2), keepdims=True)
    assert np.allclose(found, wanted)


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda: Column((3,), np.int64, log1p=True), "int64 can't be scaled"),
        (lambda: Column((3,), log1p=True, apply=np.copyto), "can't have apply="),
        (lambda: Decoder("x", Column((4, 3), divide=[1, 0, 2])), "divided by zero"),
        (lambda: Decoder("x", Column((4, 3), subtract=[1, 2])), r"\(2,\), which does not fit"),
    ],
)
def test_columns_that_can_not_work_are_refused(made: Any, message: str) -> None:
    with pytest.raises(RampupError, match=message) as caught:
        made()
    assert caught.value.hint


IMPORTED = """
import sys
from rampup.data.formats import hdf5, npy, parquet, tfrecord
from rampup.data.formats.columns import Column
hdf5.HDF5Files(["a.h5"], {"x": Column((2,))})
tfrecord.TFRecords(["a.tfrecord"], {"x": Column((2,))})
print([name for name in ("h5py", "pyarrow", "isal", "crc32c", "torch") if name in sys.modules])
"""


def test_no_library_of_a_format_is_imported_before_the_first_read() -> None:
    command = [sys.executable, "-c", IMPORTED]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


def test_without_h5py_the_hint_is_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(RampupError, match="need h5py") as caught:
        import_h5py()
    assert caught.value.hint == "pip install 'rampup[data]'"
