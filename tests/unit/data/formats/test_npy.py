"""Arrays as numpy.save and numpy.memmap write them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rampup.data.formats import npy
from rampup.data.formats.columns import Column
from rampup.data.formats.npy import NpyFiles, NpyRows
from rampup.errors import RampupError
from tests.unit.data.formats.reading import read, read_by_threads

SHAPE = (5, 6)
COLUMNS = {"image": Column(SHAPE, divide=255), "label": Column((), np.int64)}
ROWS = (40, 7, 0, 23)
DRAW = np.random.default_rng(2)
IMAGES = DRAW.integers(0, 256, (sum(ROWS), *SHAPE)).astype(np.uint8)
LABELS = DRAW.integers(0, 9, sum(ROWS))


def files(folder: Path, name: str) -> list[Path]:
    return sorted(folder.glob(f"{name}-*"))


def write_rows(folder: Path, kind: type = np.uint8, raw: bool = False) -> dict[str, list[Path]]:
    begin = 0
    for number, rows in enumerate(ROWS):
        end = begin + rows
        if raw and rows:
            made = np.memmap(folder / f"image-{number}.raw", kind, "w+", shape=(rows, *SHAPE))
            made[:] = IMAGES[begin:end]
            made.flush()
        elif raw:
            (folder / f"image-{number}.raw").write_bytes(b"")
        else:
            np.save(folder / f"image-{number}.npy", IMAGES[begin:end].astype(kind))
        np.save(folder / f"label-{number}.npy", LABELS[begin:end])
        begin = end
    return {name: files(folder, name) for name in ("image", "label")}


def check(reader: Any, order: Any) -> None:
    images, labels = read(reader, order)
    assert np.array_equal(images, IMAGES[list(order)].astype(np.float32) / np.float32(255))
    assert np.array_equal(labels, LABELS[list(order)])


@pytest.mark.parametrize("kind", [np.uint8, np.dtype(">f8"), np.float32])
@pytest.mark.parametrize("block_bytes", [200, 1 << 20])
def test_rows_are_read_in_any_order(
    kind: Any, block_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(npy, "BLOCK_BYTES", block_bytes)
    reader = NpyRows(write_rows(tmp_path, kind), COLUMNS)
    assert len(reader) == sum(ROWS) and len(reader.files()) == 8
    for order in (range(70), [69, 0, 41], [], [3, 3], DRAW.permutation(70)):
        check(reader, order)
    read_by_threads(reader)


def test_raw_memory_maps_have_rows_too(tmp_path: Path) -> None:
    columns = {"image": Column(SHAPE, stored=np.uint8, divide=255), "label": COLUMNS["label"]}
    check(NpyRows(write_rows(tmp_path, raw=True), columns, block_rows=1), DRAW.permutation(70))
    with pytest.raises(RampupError, match="1200 bytes are not whole samples of 360"):
        len(NpyRows({"image": files(tmp_path, "image")[:1]}, {"image": Column((30, 3), ">f4")}))


def test_samples_in_files_of_their_own(tmp_path: Path) -> None:
    for number in range(8):
        np.save(tmp_path / f"image-{number}.npy", IMAGES[number])
        np.save(tmp_path / f"label-{number}.npy", LABELS[number])
    reader = NpyFiles({name: files(tmp_path, name) for name in COLUMNS}, COLUMNS)
    assert len(reader) == 8
    for order in (range(8), [7, 2], []):
        check(reader, order)
    read_by_threads(reader)


def refusal(work: Any) -> RampupError:
    with pytest.raises(RampupError) as caught:
        work()
    assert caught.value.hint
    return caught.value


def test_a_file_cut_anywhere_is_named(tmp_path: Path) -> None:
    paths = write_rows(tmp_path)
    whole = paths["image"][1].read_bytes()
    for size in range(0, len(whole), 3):
        paths["image"][1].write_bytes(whole[:size])
        error = refusal(lambda: read(NpyRows(paths, COLUMNS), range(70)))
        assert str(paths["image"][1]) in error.message
    paths["image"][1].write_bytes(whole)
    reader = NpyRows(paths, COLUMNS)
    check(reader, range(70))
    paths["image"][1].write_bytes(whole[:-1])
    assert str(paths["image"][1]) in refusal(lambda: read(reader, range(70))).message
    np.save(paths["image"][1], IMAGES[:6])
    assert "row 6 was there before" in refusal(lambda: read(reader, range(70))).message


def test_a_header_that_promises_too_much_is_not_believed(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    for shape in ((10**15, *SHAPE), (2**62, 2**62, 5)):
        with path.open("wb") as file:
            head = {"descr": "|u1", "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(file, head)
            file.write(bytes(1000))
        error = refusal(lambda: len(NpyRows({"x": [path]}, {"x": Column(SHAPE)})))
        assert "cut off" in error.message
    for damaged in (
        b"\x93NUMPY\x01\x00\xff\xff{",
        b"PK\x03\x04 a zip archive",
        b"\x93NUMPY\x09\x00",
    ):
        path.write_bytes(damaged)
        error = refusal(lambda: len(NpyRows({"x": [path]}, {"x": Column(SHAPE)})))
        assert "not a complete .npy file" in error.message


def test_arrays_that_do_not_fit_are_named(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"

    def message(array: Any, column: Column) -> str:
        np.save(path, array)
        return refusal(lambda: len(NpyRows({"x": [path]}, {"x": column}))).message

    assert "shape (5, 6), not (rows, 5)" in message(IMAGES[0], Column((5,)))
    assert "order of Fortran" in message(np.asfortranarray(IMAGES), Column(SHAPE))
    assert "type <U1" in message(np.array(["a"]), Column(()))
    np.save(path, np.array([{}], dtype=object), allow_pickle=True)
    assert "type object" in refusal(lambda: len(NpyRows({"x": [path]}, {"x": Column(())}))).message
    np.save(path, IMAGES)
    single = NpyFiles({"x": [path]}, {"x": Column(SHAPE)})
    assert "NpyRows many" in refusal(lambda: read(single, [0])).hint


def test_columns_and_files_must_belong_together(tmp_path: Path) -> None:
    paths = write_rows(tmp_path)
    missing = {"image": paths["image"]}
    assert "'label' has no files" in refusal(lambda: NpyRows(missing, COLUMNS)).message
    one = {"image": COLUMNS["image"]}
    assert "'label' have no column" in refusal(lambda: NpyRows(paths, one)).message
    fewer = {**paths, "label": paths["label"][1:]}
    assert "different numbers of files" in refusal(lambda: NpyRows(fewer, COLUMNS)).message
    other = {**paths, "label": paths["label"][::-1]}
    assert "numbers of rows" in refusal(lambda: len(NpyRows(other, COLUMNS))).message
    paths["label"][3].unlink()
    assert "not there" in refusal(lambda: len(NpyRows(paths, COLUMNS))).message
