"""CosmoFlow's files: written as TensorFlow writes them, and what is damaged is named."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from rampup.datasets.cosmoflow import files
from rampup.datasets.cosmoflow.files import (
    check_cosmoflow,
    read_cosmoflow,
    read_sample,
    write_sample,
)
from rampup.datasets.cosmoflow.universe import Sample, make_sample
from rampup.errors import RampupError, Refused


@pytest.fixture
def sample() -> Sample:
    return make_sample(1, 2, 8, 8, 64.0)


def test_what_is_written_is_read(tmp_path: Path, sample: Sample) -> None:
    write_sample(tmp_path / "a.tfrecord", sample)
    counts, targets = read_sample(tmp_path / "a.tfrecord")
    assert (counts == sample.cubes).all()
    assert (targets == sample.targets).all()


def test_tensorflow_reads_it_and_is_read(tmp_path: Path, sample: Sample) -> None:
    tf = pytest.importorskip("tensorflow")
    path = tmp_path / "a.tfrecord"
    write_sample(path, sample)
    (record,) = tf.data.TFRecordDataset([str(path)], compression_type="GZIP")
    spec = {"x": tf.io.FixedLenFeature([], tf.string), "y": tf.io.FixedLenFeature([4], tf.float32)}
    found = tf.io.parse_single_example(record, spec)
    counts = tf.reshape(tf.io.decode_raw(found["x"], tf.int16), [8, 8, 8, 4]).numpy()
    assert (counts == sample.cubes).all()
    assert (found["y"].numpy() == sample.targets).all()
    for kind in ("GZIP", ""):
        other = tmp_path / f"other{kind}.tfrecord"
        with tf.io.TFRecordWriter(str(other), kind) as writer:
            writer.write(record.numpy())
        assert (read_sample(other)[0] == sample.cubes).all()


def test_the_checksum_is_compared_without_the_library_too(
    tmp_path: Path, sample: Sample, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_sample(tmp_path / "a.tfrecord", sample)
    monkeypatch.setitem(__import__("sys").modules, "crc32c", None)
    assert (read_sample(tmp_path / "a.tfrecord")[0] == sample.cubes).all()


def test_every_damaged_byte_is_noticed(tmp_path: Path, sample: Sample) -> None:
    path = tmp_path / "universe.tfrecord"
    write_sample(path, sample)
    plain = gzip.decompress(path.read_bytes())
    for place in (0, 9, 20, len(plain) // 2, len(plain) - 1):
        broken = bytearray(plain)
        broken[place] ^= 4
        for content in (bytes(broken), gzip.compress(bytes(broken))):
            path.write_bytes(content)
            with pytest.raises(RampupError, match=r"universe\.tfrecord"):
                read_sample(path)


@pytest.mark.parametrize("part", [0.0, 0.3, 0.99])
def test_a_file_that_is_cut_off_is_named(tmp_path: Path, sample: Sample, part: float) -> None:
    path = tmp_path / "universe.tfrecord"
    write_sample(path, sample)
    whole = path.read_bytes()
    for content in (whole, gzip.decompress(whole)):
        path.write_bytes(content[: int(part * len(content))])
        with pytest.raises(RampupError, match=r"universe\.tfrecord"):
            read_sample(path)


def test_a_record_of_something_else_is_named(tmp_path: Path, sample: Sample) -> None:
    path = tmp_path / "universe.tfrecord"
    write_sample(path, sample._replace(targets=np.zeros(3, np.float32)))
    with pytest.raises(RampupError, match="3 numbers, not 4"):
        read_sample(path)
    write_sample(path, sample._replace(cubes=np.zeros(100, np.int16)))
    with pytest.raises(RampupError, match="not a cube"):
        read_sample(path)
    path.write_bytes(b"".join(_framed(b"\x0a\x00")))
    with pytest.raises(RampupError, match="no feature 'x'"):
        read_sample(path)


def _framed(record: bytes) -> list[bytes]:
    head = len(record).to_bytes(8, "little")
    return [head, files._masked(head), record, files._masked(record)]


def test_a_folder_is_checked_before_it_is_read(tmp_path: Path, sample: Sample) -> None:
    with pytest.raises(Refused, match="no folder"):
        check_cosmoflow(tmp_path / "absent")
    (tmp_path / "train").mkdir()
    (tmp_path / "validation").mkdir()
    write_sample(tmp_path / "train" / "b.tfrecord", sample)
    with pytest.raises(Refused, match="validation has no file"):
        check_cosmoflow(tmp_path)
    write_sample(tmp_path / "validation" / "a.tfrecord", sample)
    write_sample(tmp_path / "train" / "a.tfrecord", sample)
    found = read_cosmoflow(tmp_path)
    assert found.size == 8
    assert [path.name for path in found.train] == ["a.tfrecord", "b.tfrecord"]
