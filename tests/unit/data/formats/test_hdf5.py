"""HDF5 files as h5py writes them: read past the library where that is safe, else through it."""

import os
import re
import signal
import threading
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from rampup.data.formats import hdf5
from rampup.data.formats.columns import Column
from rampup.data.formats.hdf5 import HDF5Files
from rampup.errors import RampupError
from tests.unit.data.formats.reading import read, read_by_threads

SHAPE = (6, 8, 5)
LOW, SPAN = np.arange(5, dtype=np.float32), np.arange(5, dtype=np.float32) + 2
COLUMNS = {
    "climate/data": Column(SHAPE, subtract=LOW, divide=SPAN, channels_last=True),
    "climate/labels": Column(SHAPE[:2], np.int64),
}
HOW: dict[str, dict[str, Any]] = {
    "plain": {},
    "chunks": {"chunks": (4, 8, 2)},
    "gzip": {"chunks": (3, 8, 5), "compression": "gzip", "shuffle": True},
    "checked": {"fletcher32": True},
    "big-endian": {"dtype": ">f4"},
    "double": {"dtype": "<f8"},
}


def write(folder: Path, number: int, **how: Any) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(number)
    data = draw.random(SHAPE).astype(np.float32)
    labels = draw.integers(0, 3, SHAPE[:2])
    with h5py.File(folder / f"data-{number}.h5", "w") as content:
        content.create_dataset("climate/data", data=data, **how)
        content.create_dataset("climate/labels", data=labels, dtype=np.uint8)
    return (data - LOW) / SPAN, labels


def readers(folder: Path) -> HDF5Files:
    return HDF5Files(sorted(folder.glob("*.h5")), COLUMNS)


def library_calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Watch which files are opened with h5py."""
    calls: list[str] = []
    opened = hdf5.opened

    def noted(path: str) -> Any:
        calls.append(path)
        return opened(path)

    monkeypatch.setattr(hdf5, "opened", noted)
    return calls


@pytest.mark.parametrize("how", HOW)
def test_samples_are_what_h5py_reads(how: str, tmp_path: Path) -> None:
    written = [write(tmp_path, number, **HOW[how]) for number in range(5)]
    reader = readers(tmp_path)
    assert len(reader) == 5 and len(reader.files()) == 5
    for order in ([3, 0, 4], [1], [], [2, 2], range(5)):
        data, labels = read(reader, order)
        for row, index in enumerate(order):
            assert np.array_equal(data[row], written[index][0])
            assert np.array_equal(labels[row], written[index][1])
    read_by_threads(reader)


def test_plain_datasets_need_the_library_once_per_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        write(tmp_path, number)
    calls, reader = library_calls(monkeypatch), readers(tmp_path)
    for _ in range(4):
        read(reader, range(3))
    assert calls == [str(path) for path in reader.files()]


def test_a_file_that_was_written_again_is_looked_at_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, 0)
    calls, reader = library_calls(monkeypatch), readers(tmp_path)
    read(reader, [0])
    with h5py.File(tmp_path / "data-0.h5", "w") as content:
        content["something/before"] = np.zeros(1000)
        content["climate/labels"] = np.ones(SHAPE[:2], np.int16)
        content["climate/data"] = np.ones(SHAPE, np.float32)
    data, labels = read(reader, [0])
    assert len(calls) == 2 and (labels == 1).all()
    assert np.array_equal(data[0], (1 - LOW) / SPAN * np.ones(SHAPE, np.float32))


def test_numbers_elsewhere_are_never_taken_for_those_of_the_file(tmp_path: Path) -> None:
    """A user block moves all places, external and virtual datasets lie in other files, and one
    that was never written lies nowhere."""
    data = np.random.default_rng(0).random(SHAPE).astype(np.float32)
    with h5py.File(tmp_path / "a.h5", "w", userblock_size=1024) as content:
        content["x"] = data
    with h5py.File(tmp_path / "b.h5", "w") as content:
        outside = [(str(tmp_path / "numbers.raw"), 0, h5py.h5f.UNLIMITED)]
        content.create_dataset("x", data=data, external=outside)
    with h5py.File(tmp_path / "c.h5", "w") as content:
        layout = h5py.VirtualLayout(SHAPE, np.float32)
        layout[...] = h5py.VirtualSource(tmp_path / "a.h5", "x", SHAPE)
        content.create_virtual_dataset("x", layout)
    with h5py.File(tmp_path / "d.h5", "w") as content:
        content.create_dataset("x", SHAPE, np.float32, fillvalue=4)
    with h5py.File(tmp_path / "e.h5", "w") as content:
        compact = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        compact.set_layout(h5py.h5d.COMPACT)
        space = h5py.h5s.create_simple(SHAPE)
        made = h5py.h5d.create(content.id, b"x", h5py.h5t.NATIVE_FLOAT, space, compact)
        made.write(h5py.h5s.ALL, h5py.h5s.ALL, data)
    (found,) = read(HDF5Files(sorted(tmp_path.glob("*.h5")), {"x": Column(SHAPE)}), range(5))
    assert (found[3] == 4).all()
    for row in (0, 1, 2, 4):
        assert np.array_equal(found[row], data)


def test_a_sample_may_have_single_numbers(tmp_path: Path) -> None:
    for number, how in enumerate(({}, {"dtype": ">i2"})):
        with h5py.File(tmp_path / f"{number}.h5", "w") as content:
            content.create_dataset("n", data=number + 5, **how)
    (found,) = read(HDF5Files(sorted(tmp_path.glob("*.h5")), {"n": Column((), np.int64)}), [1, 0])
    assert found.tolist() == [6, 5]


def test_an_integer_column_keeps_the_type_that_it_is_stored_in_to_itself(tmp_path: Path) -> None:
    def double(stored: Any, out: Any) -> None:
        assert stored.dtype == np.uint16
        np.multiply(stored, 2, out=out, casting="unsafe")

    for name, how in (("a", {}), ("b", {"chunks": (2, 3)})):
        with h5py.File(tmp_path / f"{name}.h5", "w") as content:
            content.create_dataset("n", data=np.arange(6, dtype=np.uint16).reshape(2, 3), **how)
    paths = sorted(tmp_path.glob("*.h5"))
    (found,) = read(HDF5Files(paths, {"n": Column((2, 3), apply=double)}), [0, 1])
    assert np.array_equal(found, [2 * np.arange(6).reshape(2, 3)] * 2)


def refusal(reader: HDF5Files, index: int = 0) -> RampupError:
    with pytest.raises(RampupError) as caught:
        read(reader, [index])
    assert caught.value.hint
    return caught.value


def test_a_wrong_name_brings_the_nearest_one(tmp_path: Path) -> None:
    write(tmp_path, 0)
    (path,) = tmp_path.glob("*.h5")
    for name in ("climate/dat", "climate"):
        error = refusal(HDF5Files([path], {name: Column(SHAPE)}))
        assert error.message == f"{path}: there is no dataset {name!r}"
        assert "known: climate/data, climate/labels" in error.hint
    assert (
        "did you mean climate/data?"
        in refusal(HDF5Files([path], {"climate/dat": Column(SHAPE)})).hint
    )


def test_a_wrong_shape_and_a_wrong_type_are_named(tmp_path: Path) -> None:
    write(tmp_path, 0)
    (path,) = tmp_path.glob("*.h5")
    error = refusal(HDF5Files([path], {"climate/data": Column((8, 6, 5))}))
    assert "has the shape (6, 8, 5), not (8, 6, 5)" in error.message and str(path) in error.message
    with h5py.File(path, "a") as content:
        content["text"] = "hello"
    assert "not a number" in refusal(HDF5Files([path], {"text": Column(())})).message


@pytest.mark.parametrize("how", ["plain", "gzip"])
def test_a_file_cut_anywhere_is_named_and_nothing_hangs(how: str, tmp_path: Path) -> None:
    write(tmp_path, 0, **HOW[how])
    write(tmp_path, 1)
    (path,) = tmp_path.glob("data-0.h5")
    whole = path.read_bytes()
    for size in sorted({0, 1, 7, 96, 500, *range(0, len(whole) - 1, 211), len(whole) - 1}):
        path.write_bytes(whole[:size])
        reader = readers(tmp_path)
        assert str(path) in refusal(reader).message
        read(reader, [1])
    path.write_bytes(whole)
    reader = readers(tmp_path)
    read(reader, [0])
    path.write_bytes(whole[:-100])
    assert str(path) in refusal(reader).message


def test_a_file_of_noise_and_a_damaged_chunk_are_named(tmp_path: Path) -> None:
    write(tmp_path, 0, **HOW["gzip"])
    (path,) = tmp_path.glob("*.h5")
    with h5py.File(path) as content:
        chunk = content["climate/data"].id.get_chunk_info(0)
    whole = bytearray(path.read_bytes())
    whole[chunk.byte_offset : chunk.byte_offset + chunk.size] = os.urandom(chunk.size)
    path.write_bytes(whole)
    assert "dataset 'climate/data' can't be read" in refusal(readers(tmp_path)).message
    path.write_bytes(os.urandom(5000))
    assert "not a complete HDF5 file" in refusal(readers(tmp_path)).message


def test_a_file_that_vanished_or_may_not_be_read_is_named(tmp_path: Path) -> None:
    for number in range(2):
        write(tmp_path, number)
    reader = readers(tmp_path)
    read(reader, [0, 1])
    (tmp_path / "data-1.h5").unlink()
    error = refusal(reader, 1)
    assert re.fullmatch(r".*data-1\.h5: the file is not there", error.message)
    (tmp_path / "data-1.h5").mkdir()
    assert "data-1.h5" in refusal(reader, 1).message


def test_no_files_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(RampupError, match="HDF5Files got no files"):
        readers(tmp_path)


def test_buffers_of_another_shape_are_refused(tmp_path: Path) -> None:
    write(tmp_path, 0)
    reader = readers(tmp_path)
    wrong = (np.empty((1, *SHAPE[::-1]), np.float32), np.empty((1, *SHAPE[:2]), np.int64))
    with pytest.raises(ValueError, match="climate/data"):
        reader.read(np.array([0]), wrong)


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_process_reads_while_a_thread_of_its_parent_holds_the_library(
    tmp_path: Path,
) -> None:
    write(tmp_path, 0, **HOW["gzip"])
    reader = readers(tmp_path)
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with hdf5.opened(str(tmp_path / "data-0.h5")):
            held.set()
            done.wait(60)

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait(60)
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        status = 1
        try:
            read(reader, [0])
            status = 0
        finally:
            os._exit(status)
    status = os.waitpid(child, 0)[1]
    done.set()
    holder.join(60)
    assert status == 0
