"""Passes over TFRecord files of one sample each, all in one thread. For each line of input it makes
a pass and prints the seconds per sample.

python benchmarks/loaders/cosmoflow.py ours|kept|tfdata|tfdata-cached FOLDER
"""

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from rampup.data.formats.disk import OpenFile
from rampup.data.formats.tfrecord import TFRecords
from rampup.data.reader import SampleReader
from rampup.torch import Column

SHAPE, BATCH = (128, 128, 128, 4), 4
COLUMNS = {"x": Column(SHAPE, stored="<i2", log1p=True), "y": Column((4,))}


class Kept(SampleReader):
    """The samples of a reader, decoded before into one file of raw numbers."""

    def __init__(self, reader: TFRecords, path: Path) -> None:
        self.reader, self.fields = reader, reader.fields
        out = tuple(np.empty((1, *each.shape), each.dtype) for each in reader.keepers)
        with path.open("wb") as file:
            for index in range(len(reader)):
                reader.read_kept(np.array([index]), out)
                file.writelines(array.tobytes() for array in out)
        self.file = OpenFile(str(path))

    def __len__(self) -> int:
        return len(self.reader)

    def read(self, indices: Any, out: Any) -> None:
        for row, index in enumerate(indices.tolist()):
            self.reader.read_record(self.file, index * self.reader.kept_bytes, row, out)


def with_reader(folder: Path, kept: bool) -> Callable[[], Iterator[object]]:
    records = TFRecords(sorted(folder.glob("*.tfrecord")), COLUMNS)
    reader = Kept(records, folder / "kept.raw") if kept else records
    out = tuple(np.empty((BATCH, *field.shape), field.dtype) for field in reader.fields)

    def passes() -> Iterator[object]:
        for begin in range(0, len(reader), BATCH):
            reader.read(np.arange(begin, begin + BATCH), out)
            yield out

    return passes


def with_tfdata(folder: Path, cached: bool) -> Callable[[], Iterator[object]]:
    """As the reference reads it, with its defaults, in one thread."""
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    parts = {
        "x": tf.io.FixedLenFeature([], tf.string),
        "y": tf.io.FixedLenFeature([4], tf.float32),
    }

    def parse(example: Any) -> Any:
        found = tf.io.parse_single_example(example, parts)
        x = tf.cast(tf.io.decode_raw(found["x"], tf.int16), tf.float32)
        return tf.math.log(tf.reshape(x, SHAPE) + 1.0), found["y"]

    names = sorted(str(path) for path in folder.glob("*.tfrecord"))
    samples = tf.data.Dataset.from_tensor_slices(names).shuffle(len(names))
    samples = samples.interleave(lambda name: tf.data.TFRecordDataset(name, "GZIP"))
    samples = samples.map(parse, num_parallel_calls=1)
    samples = samples.cache() if cached else samples
    samples = samples.batch(BATCH, drop_remainder=True).prefetch(4)
    options = tf.data.Options()
    options.threading.private_threadpool_size = 1
    return lambda: iter(samples.with_options(options))


def main(which: str, folder: Path) -> None:
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    if which.startswith("tfdata"):
        passes = with_tfdata(folder, which == "tfdata-cached")
    else:
        passes = with_reader(folder, which == "kept")
    for _ in sys.stdin:
        count, begun = 0, time.perf_counter()
        for _ in passes():
            count += BATCH
        print((time.perf_counter() - begun) / count, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
