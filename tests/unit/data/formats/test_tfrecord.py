"""TFRecord files as TensorFlow writes them, and files that are not what they say."""

import contextlib
import gzip
import os
import struct
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import crc32c as package
import numpy as np
import pytest

from rampup.data.formats import crc32c, inflate, records, tfrecord
from rampup.data.formats.columns import Column
from rampup.data.formats.tfrecord import TFRecords
from rampup.errors import RampupError
from tests.unit.data.formats.reading import read, read_by_threads

SHAPE = (4, 6, 2)
COLUMNS = {
    "x": Column(SHAPE, stored="<i2", log1p=True),
    "y": Column((4,)),
    "n": Column((3,), np.int64),
}

WRITTEN_BY_TENSORFLOW = """
import sys
import numpy as np
import tensorflow as tf
folder = sys.argv[1]
x, y, n = (np.load(f"{folder}/{name}.npy") for name in "xyn")
def example(row):
    feature = {
        "x": tf.train.Feature(bytes_list=tf.train.BytesList(value=[x[row].tobytes()])),
        "y": tf.train.Feature(float_list=tf.train.FloatList(value=y[row])),
        "n": tf.train.Feature(int64_list=tf.train.Int64List(value=n[row])),
        "name": tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"a", b"b"])),
    }
    return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()
for options in ("GZIP", ""):
    for row in range(len(x)):
        with tf.io.TFRecordWriter(f"{folder}/one-{options}{row:02}.tfrecord", options) as file:
            file.write(example(row))
    for part, rows in enumerate(np.array_split(np.arange(len(x)), 2)):
        with tf.io.TFRecordWriter(f"{folder}/many-{options}{part}.tfrecord", options) as file:
            for row in rows:
                file.write(example(row))
"""


def numbers(count: int = 9) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    draw = np.random.default_rng(3)
    x = draw.poisson(2, (count, *SHAPE)).astype("<i2")
    y = draw.normal(size=(count, 4)).astype(np.float32)
    n = draw.integers(-(2**62), 2**62, (count, 3)) >> draw.integers(0, 62, (count, 3))
    return x, y, n


def varint(value: int) -> bytes:
    value &= 2**64 - 1
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])


def field(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def entry(name: str, kind: int, values: bytes) -> bytes:
    return field(1, field(1, name.encode()) + field(2, field(kind, values)))


def example(x: Any, y: Any, n: Any) -> bytes:
    """An Example as other writers may have it too: a list that is not packed."""
    floats = b"".join(b"\x0d" + struct.pack("<f", each) for each in y)
    integers = b"".join(b"\x08" + varint(int(each)) for each in n)
    parts = entry("x", 1, field(1, x.tobytes())) + entry("y", 2, floats) + entry("n", 3, integers)
    return field(1, parts)


def frame(content: bytes) -> bytes:
    length = struct.pack("<Q", len(content))
    checks = [struct.pack("<I", crc32c.masked_crc32c(part)) for part in (length, content)]
    return length + checks[0] + content + checks[1]


def write(folder: Path, rows: int = 1, compressed: bool = False) -> list[Path]:
    framed = [frame(example(*each)) for each in zip(*numbers(), strict=True)]
    paths = []
    for begin in range(0, len(framed), rows):
        path = folder / f"{begin:03}.tfrecord"
        content = b"".join(framed[begin : begin + rows])
        path.write_bytes(gzip.compress(content) if compressed else content)
        paths.append(path)
    return paths


def check(reader: TFRecords, order: Any) -> None:
    x, y, n = numbers()
    found = read(reader, order)
    picked = list(order)
    assert np.allclose(found[0], np.log1p(x[picked].astype(np.float32)), atol=1e-6)
    assert np.array_equal(found[1], y[picked])
    assert np.array_equal(found[2], n[picked])


ORDERS = (range(9), [8, 0, 3], [4], [], [5, 5, 6])


@pytest.mark.skipif(find_spec("tensorflow") is None, reason="it needs pip install 'rampup[keras]'")
def test_files_written_by_tensorflow_are_read(tmp_path: Path) -> None:
    """It takes some seconds to import TensorFlow, once for all files."""
    for name, values in zip("xyn", numbers(), strict=True):
        np.save(tmp_path / f"{name}.npy", values)
    command = [sys.executable, "-c", WRITTEN_BY_TENSORFLOW, str(tmp_path)]
    subprocess.run(command, check=True, capture_output=True)
    for options in ("GZIP", ""):
        one = sorted(tmp_path.glob(f"one-{options}0*"))
        many = sorted(tmp_path.glob(f"many-{options}[01].*"))
        readers = (TFRecords(one, COLUMNS), TFRecords(many, COLUMNS, samples_per_file=None))
        for reader in readers:
            assert len(reader) == 9
            for order in ORDERS:
                check(reader, order)


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize(("rows", "given"), [(1, 1), (3, 3), (3, None), (4, None)])
@pytest.mark.parametrize("block_bytes", [1 << 8, 1 << 20])
def test_records_are_read_in_any_order_by_many_threads(
    rows: int,
    given: int | None,
    compressed: bool,
    block_bytes: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tfrecord, "BLOCK_BYTES", block_bytes)
    reader = TFRecords(write(tmp_path, rows, compressed), COLUMNS, samples_per_file=given)
    assert len(reader) == 9
    for order in ORDERS:
        check(reader, order)
    read_by_threads(reader, rounds=6)


@pytest.mark.parametrize("package_name", ["isal", "crc32c"])
def test_without_the_fast_packages_the_same_is_read_and_refused(
    package_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package_name, None)
    inflate.library.cache_clear()
    crc32c.library.cache_clear()
    try:
        paths = write(tmp_path, 3, compressed=True)
        check(TFRecords(paths, COLUMNS, samples_per_file=3), range(9))
        content = bytearray(gzip.decompress(paths[1].read_bytes()))
        content[40] ^= 1
        paths[1].write_bytes(gzip.compress(content))
        assert "checksum is wrong" in refusal(TFRecords(paths, COLUMNS, 3), [3]).message
    finally:
        inflate.library.cache_clear()
        crc32c.library.cache_clear()


@pytest.mark.parametrize("size", [0, 1, 100, 32767, 32768, 33000, 200_001])
def test_the_checksum_by_numpy_is_that_of_the_instruction(size: int) -> None:
    data = np.random.default_rng(size).bytes(size)
    assert crc32c.compute(data) == package.crc32c(data)
    assert crc32c.compute(b"123456789") == 0xE3069283


def refusal(reader: TFRecords, order: Any = (0,)) -> RampupError:
    with pytest.raises(RampupError) as caught:
        read(reader, order)
    assert caught.value.hint
    return caught.value


@pytest.mark.parametrize("compressed", [False, True])
def test_a_file_cut_anywhere_is_named_with_its_record(compressed: bool, tmp_path: Path) -> None:
    paths = write(tmp_path, 3, compressed)
    whole = paths[1].read_bytes()
    for size in range(len(whole)):
        paths[1].write_bytes(whole[:size])
        error = refusal(TFRecords(paths, COLUMNS, samples_per_file=3), range(9))
        assert str(paths[1]) in error.message
        assert "record" in error.message
    paths[1].write_bytes(whole)
    check(TFRecords(paths, COLUMNS, samples_per_file=3), range(9))


def test_any_flipped_bit_of_a_record_is_noticed(tmp_path: Path) -> None:
    paths = write(tmp_path)
    whole = paths[0].read_bytes()
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << place % 8
        paths[0].write_bytes(damaged)
        assert str(paths[0]) in refusal(TFRecords(paths, COLUMNS)).message
    damaged = bytearray(whole)
    damaged[whole.index(numbers()[0][0].tobytes())] ^= 1
    paths[0].write_bytes(damaged)
    read(TFRecords(paths, COLUMNS, checksums=False), [0])


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("length", [2**63, 2**40, 10**9, 10_000])
def test_a_huge_length_is_not_believed(length: int, compressed: bool, tmp_path: Path) -> None:
    """Also with a checksum that fits; and one of the length alone is noticed at once."""
    head = struct.pack("<Q", length)
    for check, message in ((crc32c.masked_crc32c(head), f"{length} bytes"), (1, "of its length")):
        content = head + struct.pack("<I", check) + bytes(100)
        path = tmp_path / "a.tfrecord"
        path.write_bytes(gzip.compress(content) if compressed else content)
        for given in (1, None):
            reader = TFRecords([path], COLUMNS, samples_per_file=given)
            with pytest.raises(RampupError, match=message):
                read(reader, range(len(reader)))


MEMORY = """
import resource, sys
import numpy as np
from rampup.data.formats.columns import Column
from rampup.data.formats.tfrecord import TFRecords
from rampup.errors import RampupError
reader = TFRecords([sys.argv[1]], {"x": Column((8,))}, samples_per_file=None)
resource.setrlimit(resource.RLIMIT_AS, (1 << 31, 1 << 31))
try:
    reader.read(np.arange(len(reader)), (np.empty((1, 8), np.float32),))
except RampupError as error:
    print(error.message)
print(open("/proc/self/status").read().partition("VmHWM:")[2].split()[0])
"""


def test_a_small_file_that_inflates_to_gigabytes_takes_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "bomb.tfrecord"
    head = struct.pack("<Q", 3 << 30)
    with gzip.open(path, "wb", 1) as file:
        file.write(head + struct.pack("<I", crc32c.masked_crc32c(head)))
        for _ in range(256):
            file.write(bytes(1 << 20))
    command = [sys.executable, "-c", MEMORY, str(path)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    message, peak_kb = done.stdout.splitlines()
    assert "more than 268435456" in message and int(peak_kb) < 200_000


def test_bytes_that_are_not_an_example_are_named(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    draw = np.random.default_rng(0)
    good = example(*(each[0] for each in numbers()))
    for _ in range(300):
        damaged = bytearray(good)
        for place in draw.integers(0, len(good), 3):
            damaged[place] = draw.integers(0, 256)
        path.write_bytes(frame(bytes(damaged)))
        with contextlib.suppress(RampupError):  # some changes only change numbers
            read(TFRecords([path], COLUMNS), [0])
    for content in (b"", b"\x0f", os.urandom(50), b"\x0a\xff\xff\xff\xff\x0f", b"\xff" * 11):
        path.write_bytes(frame(content))
        assert str(path) in refusal(TFRecords([path], COLUMNS)).message


def test_columns_that_do_not_fit_the_files_are_named(tmp_path: Path) -> None:
    paths = write(tmp_path)

    def message(name: str, column: Column) -> RampupError:
        return refusal(TFRecords(paths, {name: column}))

    error = message("X", Column(SHAPE))
    assert "record 0 has no feature 'X'" in error.message and "known: n, x, y" in error.hint
    assert "has 48 numbers, not 24" in message("x", Column((4, 6), stored="<i2")).message
    assert "has 24 numbers, not 48" in message("x", Column(SHAPE)).message
    assert "has 4 numbers, not 5" in message("y", Column((5,))).message
    assert "not whole numbers" in message("x", Column((4,), stored="V7")).message


@pytest.mark.parametrize("compressed", [False, True])
def test_another_number_of_records_is_named(compressed: bool, tmp_path: Path) -> None:
    paths = write(tmp_path, 3, compressed)
    assert "more than 1 of 1 records" in refusal(TFRecords(paths, COLUMNS)).message
    assert "more than 2 of 2" in refusal(TFRecords(paths, COLUMNS, 2), range(2)).message
    assert "only 3 of 4" in refusal(TFRecords(paths, COLUMNS, 4), range(4)).message
    assert "samples_per_file" in refusal(TFRecords(paths, COLUMNS, 4), [3]).hint
    with pytest.raises(RampupError, match="samples_per_file=0"):
        TFRecords(paths, COLUMNS, samples_per_file=0)


def test_a_file_that_is_plain_may_begin_like_a_compressed_one(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    padded = field(1, entry("x", 1, field(1, bytes(8))))
    padded += field(15, bytes(0x8B1F - len(padded) - 4))
    assert len(padded) == 0x8B1F
    path.write_bytes(frame(padded))
    assert path.read_bytes().startswith(records.GZIP_MAGIC)
    (found,) = read(TFRecords([path], {"x": Column((2,))}), [0])
    assert found.tolist() == [[0, 0]]


def test_compressed_parts_may_follow_each_other(tmp_path: Path) -> None:
    x, y, n = numbers()
    framed = [frame(example(*each)) for each in zip(x, y, n, strict=True)]
    path = tmp_path / "a.tfrecord"
    path.write_bytes(b"".join(gzip.compress(each) for each in framed) + bytes(5))
    check(TFRecords([path], COLUMNS, samples_per_file=None), range(9))


def test_a_sample_may_have_single_numbers(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    path.write_bytes(frame(field(1, entry("n", 3, field(1, varint(-7))))))
    (found,) = read(TFRecords([path], {"n": Column((), np.int64)}), [0])
    assert found.tolist() == [-7]


def test_of_a_compressed_file_with_many_records_all_is_one_block(tmp_path: Path) -> None:
    blocks = TFRecords(write(tmp_path, 3, compressed=True), COLUMNS, 3).blocks()
    assert blocks is not None and blocks.starts.tolist() == [0, 3, 6]
    assert TFRecords(write(tmp_path), COLUMNS).blocks() is None
