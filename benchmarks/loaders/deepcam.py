"""Passes over HDF5 files of one sample each. For each line of input `warm` or `cold` it makes a pass
and prints the seconds per sample.

python benchmarks/loaders/deepcam.py ours|loader|preadv FOLDER
"""

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import h5py
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from rampup.torch import Column, HDF5Files

SHAPE = (768, 1152, 16)
DATA, LABEL = "climate/data", "climate/labels_0"


def limits(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    with h5py.File(folder / "stats.h5") as stats:
        return stats["climate/minval"][...], stats["climate/maxval"][...]


class CamData(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """One sample per file, as the reference reads it."""

    def __init__(self, folder: Path) -> None:
        self.files = sorted(folder.glob("data-*.h5"))
        minval, maxval = limits(folder)
        self.shift, self.scale = minval, 1 / (maxval - minval)

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        with h5py.File(self.files[index], "r") as file:
            data = file[DATA][...]
            label = file[LABEL][...].astype(np.int64)
        data = self.scale * (data - self.shift)
        return torch.from_numpy(np.transpose(data, (2, 0, 1)).copy()), torch.from_numpy(label)


def with_loader(folder: Path) -> Callable[[], Iterator[object]]:
    loader = DataLoader(CamData(folder), batch_size=1, num_workers=1, drop_last=True)
    return lambda: iter(loader)


def with_reader(folder: Path) -> Callable[[], Iterator[object]]:
    minval, maxval = limits(folder)
    reader = HDF5Files(
        sorted(folder.glob("data-*.h5")),
        {
            DATA: Column(SHAPE, channels_last=True, subtract=minval, divide=maxval - minval),
            LABEL: Column(SHAPE[:2], np.int64),
        },
    )
    out = tuple(np.empty((1, *field.shape), field.dtype) for field in reader.fields)

    def passes() -> Iterator[object]:
        for index in range(len(reader)):
            reader.read(np.array([index]), out)
            yield torch.from_numpy(out[0]).permute(0, 3, 1, 2), torch.from_numpy(out[1])

    return passes


def with_preadv(folder: Path) -> Callable[[], Iterator[object]]:
    """The bytes alone: what no reader can be faster than."""
    memory = memoryview(bytearray(1 << 20))

    def passes() -> Iterator[object]:
        for path in sorted(folder.glob("data-*.h5")):
            fd, offset = os.open(path, os.O_RDONLY), 0
            while count := os.preadv(fd, [memory], offset):
                offset += count
            os.close(fd)
            yield offset

    return passes


def forget(folder: Path) -> None:
    """Take the files out of the page cache."""
    for path in folder.glob("*.h5"):
        fd = os.open(path, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def main(which: str, folder: Path) -> None:
    torch.set_num_threads(1)
    sides = {"ours": with_reader, "loader": with_loader, "preadv": with_preadv}
    passes = sides[which](folder)
    for line in sys.stdin:
        if line.strip() == "cold":
            forget(folder)
        samples = passes()
        next(samples)  # a DataLoader starts its worker
        count, begun = 0, time.perf_counter()
        for _ in samples:
            count += 1
        print((time.perf_counter() - begun) / count, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
