"""Data that does not fit in memory: rampup's readers against loaders as their users write them.

Each side is a process that makes a pass over the same files whenever it is asked to, so the sides
alternate and starting up is not measured. The files take about 3 GB of the folder for temporary
files, which must be on a disk for the cold lines.
"""

import gzip
import importlib.util
import os
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from benchmarks.measure import Line, faster, medians, spread_of, timed
from rampup.data.formats.crc32c import masked_crc32c
from rampup.data.formats.hdf5 import HDF5Rows
from rampup.data.order import block_permutation, piece, shard
from rampup.torch import Column

HERE = Path(__file__).parent / "loaders"
CAM_FILES, CAM_SHAPE = 12, (768, 1152, 16)
CUBES, CUBE_SHAPE = 16, (128, 128, 128, 4)
JETS, JET_SHAPE = {"contiguous": 300_000, "gzip": 30_000}, (100, 8)
CHUNKS = {"chunks": (512, *JET_SHAPE), "compression": "gzip"}
BATCH = 512
"""Of each rank."""
RANK, RANKS = 1, 8


class Side:
    """A process that makes a pass when it is asked to."""

    def __init__(self, script: str, which: str, folder: Path) -> None:
        env = {**os.environ, "OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
        env["PYTHONPATH"] = str(HERE.parents[1])
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / script), which, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=env,
        )

    def __enter__(self) -> Callable[[str], float]:
        return self.passes

    def passes(self, how: str = "warm") -> float:
        """Return the seconds per sample of one pass."""
        assert self._process.stdin and self._process.stdout
        print(how, file=self._process.stdin, flush=True)
        return float(self._process.stdout.readline())

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()


def lines(repeats: int = 5) -> Iterator[Line]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        yield from climate(folder, repeats)
        yield from jets(folder, repeats)
        if importlib.util.find_spec("tensorflow") is None:
            print("GZIP TFRecords / tf.data: left out (pip install 'rampup[keras]')")
        else:
            yield from cubes(folder, repeats)


def climate(folder: Path, repeats: int) -> Iterator[Line]:
    folder = folder / "climate"
    write_climate(folder)
    with ExitStack() as stack:
        ours, loader, preadv = (
            stack.enter_context(Side("deepcam.py", which, folder))
            for which in ("ours", "loader", "preadv")
        )
        ours("warm"), loader("warm")
        pairs = [(ours("warm"), loader("warm")) for _ in range(repeats)]
        yield faster("HDF5 in memory / DataLoader, speed", pairs, 10)
        cold = [(ours("cold"), loader("cold"), preadv("cold")) for _ in range(repeats)]
    pairs = [(one, two) for one, two, _ in cold]
    shares = [bare / one for one, _, bare in cold]
    share = float(np.median(shares))
    line = faster("HDF5 from disk / DataLoader, speed", pairs, 4)
    holds = line.holds or share >= 0.8
    bound = ">= 4x, or 80 % of preadv"
    yield Line(line.name, line.ours_s, line.theirs_s, line.ratio, line.spread, bound, holds)
    mine, bare = medians([(one, three) for one, _, three in cold])
    yield Line("HDF5 from disk / preadv, speed", mine, bare, share, spread_of(shares), "", True)


def cubes(folder: Path, repeats: int) -> Iterator[Line]:
    folder = folder / "cubes"
    write_cubes(folder)
    with ExitStack() as stack:
        ours, kept, tfdata, cached = (
            stack.enter_context(Side("cosmoflow.py", which, folder))
            for which in ("ours", "kept", "tfdata", "tfdata-cached")
        )
        found = []
        for _ in range(repeats + 1):
            found.append((ours("pass"), kept("pass"), tfdata("pass"), cached("pass")))
    del found[0]  # tracing, and the pass that fills the caches
    yield faster("TFRecords, GZIP / tf.data, speed", [(one[0], one[2]) for one in found], 2.2)
    yield faster("decoded TFRecords / tf.data, speed", [(one[1], one[2]) for one in found], 5)
    beside = faster("decoded / tf.data with cache(), speed", [(one[1], one[3]) for one in found], 0)
    yield Line(*(getattr(beside, name) for name in beside.__struct_fields__[:5]), "", True)


def jets(folder: Path, repeats: int) -> Iterator[Line]:
    folder = folder / "jets"
    folder.mkdir()
    for name, at_least in (("contiguous", 5), ("gzip", 4)):
        path = folder / f"{name}.h5"
        write_jets(path, JETS[name], {} if name == "contiguous" else CHUNKS)
        mine, shuffled = in_runs(path), in_blocks(path)
        found = []
        for _ in range(repeats + 1):
            sides = (lambda: read(path, mine), lambda: read_strided(path))  # noqa: B023
            found.append((*map(timed, sides), timed(lambda: read(path, shuffled))))  # noqa: B023
        del found[0]  # the file comes into the page cache
        pairs = [(ours, theirs) for ours, theirs, _ in found]
        yield faster(f"{name} rows in runs / [rank::size], speed", pairs, at_least)
        line = faster("", [(ours, theirs) for _, theirs, ours in found], 0)
        name = f"{name} rows shuffled / [rank::size], speed"
        yield Line(name, line.ours_s, line.theirs_s, line.ratio, line.spread, "", True)


def read_strided(path: Path) -> None:
    """Every eighth row, as UCluster's ranks load their part; they do not shuffle."""
    with h5py.File(path, "r", locking=False) as file:
        data, label = file["data"][RANK::RANKS], file["label"][RANK::RANKS]
    for begin in range(0, len(data), BATCH):
        _ = data[begin : begin + BATCH], label[begin : begin + BATCH]


def reader_of(path: Path) -> HDF5Rows:
    return HDF5Rows([path], {"data": Column(JET_SHAPE), "label": Column((3,))})


def in_runs(path: Path) -> np.ndarray:
    """As many rows, one after the other: a rank's part of a validation."""
    low, high = shard(len(reader_of(path)), RANK, RANKS)
    return np.arange(low, high)


def in_blocks(path: Path) -> np.ndarray:
    """As many rows, shuffled: a rank's part of an epoch."""
    reader = reader_of(path)
    size, blocks, batch = len(reader), reader.blocks(), BATCH * RANKS
    assert blocks is not None
    order = block_permutation(1, 1, size, blocks, batch)
    mine = []
    for begin in range(0, size, batch):
        low, high = piece(begin, min(begin + batch, size), RANK, RANKS)
        mine.append(order[low:high])
    return np.concatenate(mine)


def read(path: Path, order: np.ndarray) -> None:
    """Read rows batch by batch with a reader that knows nothing of the file yet."""
    reader = reader_of(path)
    out = tuple(np.empty((BATCH, *field.shape), field.dtype) for field in reader.fields)
    for begin in range(0, len(order), BATCH):
        indices = order[begin : begin + BATCH]
        reader.read(indices, tuple(array[: len(indices)] for array in out))


# the files --------------------------------------------------------------------------------------


def write_climate(folder: Path) -> None:
    folder.mkdir()
    draw = np.random.default_rng(0)
    data = draw.normal(5, 3, CAM_SHAPE).astype(np.float32)
    for number in range(CAM_FILES):
        data = np.roll(data, 1, axis=0)
        with h5py.File(folder / f"data-{number:02}.h5", "w") as file:
            file["climate/data"] = data
            file["climate/labels_0"] = draw.integers(0, 3, CAM_SHAPE[:2], np.uint8)
    with h5py.File(folder / "stats.h5", "w") as file:
        file["climate/minval"] = data.min(axis=(0, 1))
        file["climate/maxval"] = data.max(axis=(0, 1))
    os.sync()  # only what is on the disk leaves the page cache


def write_cubes(folder: Path) -> None:
    folder.mkdir()
    draw = np.random.default_rng(0)
    for number in range(CUBES):
        x = draw.poisson(1.2, CUBE_SHAPE).astype("<i2").tobytes()
        y = draw.random(4).astype("<f4").tobytes()
        features = entry(b"x", 1, field(1, x)) + entry(b"y", 2, field(1, y))
        content = field(1, features)
        length = struct.pack("<Q", len(content))
        framed = length + checked(length) + content + checked(content)
        (folder / f"{number:02}.tfrecord").write_bytes(gzip.compress(framed, 6))


def checked(part: bytes) -> bytes:
    return struct.pack("<I", masked_crc32c(part))


def entry(name: bytes, kind: int, values: bytes) -> bytes:
    return field(1, field(1, name) + field(2, field(kind, values)))


def field(number: int, content: bytes) -> bytes:
    """Write a field of a protocol buffer."""
    size, length = bytearray(), len(content)
    while length > 127:
        size.append(length & 127 | 128)
        length >>= 7
    return bytes([number << 3 | 2, *size, length]) + content


def write_jets(path: Path, count: int, how: dict[str, Any]) -> None:
    draw = np.random.default_rng(0)
    data = draw.normal(size=(count, *JET_SHAPE)).astype(np.float32)
    for row, particles in enumerate(draw.integers(20, JET_SHAPE[0], count)):
        data[row, particles:] = 0
    with h5py.File(path, "w") as file:
        file.create_dataset("data", data=data, **how)
        file["label"] = np.eye(3, dtype=np.float32)[draw.integers(0, 3, count)]
