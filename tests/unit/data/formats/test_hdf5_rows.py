"""Many samples in an HDF5 file: read in whole chunks, each once, and never one here, one there."""

import os
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from rampup.data.formats import hdf5
from rampup.data.formats.columns import Column
from rampup.data.formats.hdf5 import HDF5Rows
from rampup.data.order import block_permutation, piece
from rampup.errors import RampupError
from tests.unit.data.formats.reading import read, read_by_threads

SHAPE = (10, 8)
ROWS = (300, 77, 0, 128)
HOW: dict[str, dict[str, Any]] = {
    "contiguous": {},
    "auto chunks": {"chunks": True},
    "chunks": {"chunks": (32, 10, 8)},
    "gzip": {"chunks": (32, 10, 8), "compression": "gzip"},
    "gzip, shuffled bytes": {"chunks": (50, 10, 8), "compression": "gzip", "shuffle": True},
    "gzip, cut rows": {"chunks": (64, 4, 3), "compression": "gzip", "shuffle": True},
    "lzf": {"chunks": (32, 10, 8), "compression": "lzf"},
    "checked": {"chunks": (32, 10, 8), "compression": "gzip", "fletcher32": True},
    "big-endian": {"chunks": (32, 10, 8), "compression": "gzip", "dtype": ">f8"},
    "one row": {"chunks": (1, 10, 8)},
}
COLUMNS = {"data": Column(SHAPE, subtract=np.arange(8), divide=2), "label": Column((3,))}


def write(folder: Path, how: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Write files of several lengths, which are no whole numbers of chunks."""
    draw = np.random.default_rng(5)
    data = draw.integers(0, 9, (sum(ROWS), *SHAPE)).astype(np.float32)
    label = np.eye(3, dtype=np.float32)[draw.integers(0, 3, sum(ROWS))]
    begin = 0
    for number, rows in enumerate(ROWS):
        end = begin + rows
        options = how if rows else {}
        with h5py.File(folder / f"part-{number}.h5", "w") as content:
            content.create_dataset("data", data=data[begin:end], **options)
            content["label"] = label[begin:end]
        begin = end
    return (data - np.arange(8, dtype=np.float32)) / 2, label


def reader_of(folder: Path, **options: Any) -> HDF5Rows:
    return HDF5Rows(sorted(folder.glob("*.h5")), COLUMNS, **options)


@pytest.fixture(params=[1 << 12, 1 << 20])
def block_bytes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(hdf5, "BLOCK_BYTES", request.param)
    return int(request.param)


@pytest.mark.parametrize("how", HOW)
def test_rows_are_what_h5py_reads_in_any_order(how: str, block_bytes: int, tmp_path: Path) -> None:
    data, label = write(tmp_path, HOW[how])
    reader = reader_of(tmp_path)
    assert len(reader) == sum(ROWS)
    draw = np.random.default_rng(1)
    orders = [range(sum(ROWS)), [299, 300], [504, 0], [], [7, 7], draw.permutation(sum(ROWS))]
    for order in orders:
        found, labels = read(reader, order)
        assert np.array_equal(found, data[list(order)])
        assert np.array_equal(labels, label[list(order)])
    read_by_threads(reader, rounds=4)


def test_blocks_are_whole_chunks_and_end_with_their_file(tmp_path: Path) -> None:
    write(tmp_path, HOW["gzip"])
    reader = reader_of(tmp_path, block_rows=None)
    blocks = reader.blocks()
    assert blocks is not None and blocks.starts.tolist() == [0, 300, 377]  # all in a megabyte
    blocks = reader_of(tmp_path, block_rows=32).blocks()
    assert blocks is not None
    wanted = [*range(0, 300, 32), *range(300, 377, 32), *range(377, 505, 32)]
    assert blocks.starts.tolist() == wanted
    assert reader_of(tmp_path, block_rows=1).blocks() is None


def test_in_a_shuffled_epoch_two_ranks_inflate_each_chunk_about_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, _ = write(tmp_path, HOW["gzip"])
    inflated = 0
    fetch = hdf5.fetch_chunks

    def counted(*arguments: Any) -> Any:
        nonlocal inflated
        found = fetch(*arguments)
        inflated += len(found)
        return found

    monkeypatch.setattr(hdf5, "fetch_chunks", counted)
    size, batch = sum(ROWS), 64
    seen = []
    for rank in range(2):
        reader = reader_of(tmp_path, block_rows=32)
        blocks = reader.blocks()
        assert blocks is not None
        order = block_permutation(3, 0, size, blocks, batch)
        for begin in range(0, size, batch):
            low, high = piece(begin, min(begin + batch, size), rank, 2)
            found, _ = read(reader, order[low:high])
            assert np.array_equal(found, data[order[low:high]])
            seen += order[low:high].tolist()
    assert sorted(seen) == list(range(size))
    assert inflated < 1.6 * len(blocks.starts)


def test_chunks_are_inflated_without_the_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    read_into = hdf5._read_into

    def noted(path: str, dataset: Any, *others: Any) -> None:
        calls.append(dataset.name)
        read_into(path, dataset, *others)

    monkeypatch.setattr(hdf5, "_read_into", noted)
    for how in ("contiguous", "gzip", "gzip, cut rows", "gzip, shuffled bytes"):
        write(tmp_path, HOW[how])
        read(reader_of(tmp_path), range(sum(ROWS)))
    assert calls == []
    write(tmp_path, HOW["lzf"])
    read(reader_of(tmp_path), range(sum(ROWS)))
    assert calls == ["/data"] * 3


def test_chunks_out_of_the_ordinary_are_left_to_the_library(tmp_path: Path) -> None:
    """A chunk that was never written, and one that the filters were skipped for."""
    with h5py.File(tmp_path / "a.h5", "w") as content:
        data = content.create_dataset(
            "data", (96, *SHAPE), np.float32, chunks=(32, 10, 8), compression="gzip", fillvalue=2
        )
        data[:32] = 5
        plain = np.full((32, *SHAPE), 7, np.float32)
        data[64:] = 1
        data.id.write_direct_chunk((64, 0, 0), plain.tobytes(), filter_mask=1)
    reader = HDF5Rows([tmp_path / "a.h5"], {"data": Column(SHAPE)}, block_rows=32)
    (found,) = read(reader, range(96))
    assert [found[row, 0, 0] for row in (0, 40, 80)] == [5, 2, 7]


def test_your_own_code_may_have_the_file_open(tmp_path: Path) -> None:
    data, _ = write(tmp_path, HOW["gzip"])
    with h5py.File(tmp_path / "part-0.h5") as content:
        reader = reader_of(tmp_path, block_rows=32)
        found, _ = read(reader, range(100))
        assert np.array_equal(found, data[:100]) and len(content) == 2
    with h5py.File(tmp_path / "part-0.h5", "a") as content:
        content.attrs["seen"] = True


def refusal(reader: HDF5Rows) -> RampupError:
    with pytest.raises(RampupError) as caught:
        read(reader, range(len(reader)))
    assert caught.value.hint
    return caught.value


def test_datasets_that_do_not_fit_each_other_or_the_columns_are_named(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as content:
        content["data"] = np.zeros((5, *SHAPE))
        content["label"] = np.zeros((4, 3))
        content["one"] = 3.0
    assert "'label' has the shape (4, 3)" in refusal(HDF5Rows([path], COLUMNS)).message
    error = refusal(HDF5Rows([path], {"data": Column((8, 10))}))
    assert "has the shape (5, 10, 8), not (rows, 8, 10)" in error.message
    assert "HDF5Files" in refusal(HDF5Rows([path], {"data": Column((5, *SHAPE))})).hint
    assert "'one' has the shape ()" in refusal(HDF5Rows([path], {"one": Column(())})).message


def test_a_file_that_has_other_rows_than_before_is_named(tmp_path: Path) -> None:
    write(tmp_path, {})
    reader = reader_of(tmp_path)
    read(reader, range(sum(ROWS)))
    path = tmp_path / "part-1.h5"
    kept = path.read_bytes()
    with h5py.File(path, "w") as content:
        content["data"], content["label"] = np.zeros((76, *SHAPE)), np.zeros((76, 3))
    assert refusal(reader).message.startswith(f"{path}: the file changed")
    path.write_bytes(kept)
    fresh = reader_of(tmp_path)
    len(fresh)
    with h5py.File(path, "w") as content:
        content["label"], content["data"] = np.ones((77, 3)), np.zeros((77, *SHAPE))
    assert (read(fresh, range(300, 377))[1] == 1).all()


def test_a_damaged_chunk_is_named_by_every_thread_that_needs_it(tmp_path: Path) -> None:
    write(tmp_path, HOW["gzip"])
    path = tmp_path / "part-0.h5"
    with h5py.File(path) as content:
        chunk = content["data"].id.get_chunk_info(2)
    whole = bytearray(path.read_bytes())
    whole[chunk.byte_offset : chunk.byte_offset + chunk.size] = os.urandom(chunk.size)
    path.write_bytes(whole)
    reader = reader_of(tmp_path, block_rows=32)
    read(reader, range(64))
    for wanted in ([70], [70, 71], range(64, 96)):
        with pytest.raises(RampupError, match=r"part-0\.h5: dataset 'data' can't be read"):
            read(reader, wanted)
    read(reader, range(96, sum(ROWS)))


def test_memory_for_blocks_is_bounded(tmp_path: Path) -> None:
    write(tmp_path, HOW["gzip"])
    reader = reader_of(tmp_path, block_rows=32, cache_mb=1)
    blocks = reader.blocks()
    assert blocks is not None and blocks.mixed == 16
    with h5py.File(tmp_path / "large.h5", "w") as content:
        content.create_dataset("data", (64, 100_000), "f4", chunks=(8, 100_000), compression=1)
    large = HDF5Rows([tmp_path / "large.h5"], {"data": Column((100_000,))}, cache_mb=10)
    blocks = large.blocks()
    assert blocks is not None and blocks.mixed == 1
    for order in np.random.default_rng(0).permutation(64).reshape(32, 2):
        read(large, order)
    assert len(large._cache._blocks) <= 3
    with pytest.raises(RampupError, match="cache_mb=0"):
        reader_of(tmp_path, cache_mb=0)
