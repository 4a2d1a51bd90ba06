"""Data that is read sample by sample, for sets that do not fit in memory.

A recipe returns a SampleReader from `data()`. It says how many samples there are and reads some of
them into buffers that the engine owns; the engine decides which, and reads the next batches ahead
with threads. It never opens a file before the first read, and it imports no framework.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import DTypeLike, NDArray


@dataclass(frozen=True)
class Field:
    """One array of a sample: the shape and type in which `read` delivers it."""

    shape: tuple[int, ...]
    dtype: DTypeLike = np.float32
    channels_last: bool = False
    """The shape ends with the channels. With torch a model gets the same memory as a view with the
    channels first, which is torch's channels_last format."""


@dataclass(frozen=True)
class Blocks:
    """Samples that are cheap to read together: a chunk of a file, a row group, a compressed file.

    A shuffled epoch then goes through the blocks in random order, and mixes the samples of
    `mixed` blocks: so many a reader keeps at a time.
    """

    starts: NDArray[np.int64]
    """The first sample of each block, beginning with 0."""
    mixed: int = 16


class SampleReader(ABC):
    """Samples in files, or anywhere: how many there are, and how to read some of them."""

    fields: tuple[Field, ...]
    """What a sample consists of, in the order in which a batch has it."""
    copy_of: Callable[[str | Path], str] | None = None
    """Set by the engine with `stage=node`; `local_path` asks it."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def read(self, indices: NDArray[np.int64], out: tuple[NDArray[np.generic], ...]) -> None:
        """Read the samples at `indices`: `out[k][i]` becomes field k of sample `indices[i]`.

        Several threads call it at once, each with buffers of its own. What it can't read it raises
        as an error that names the file.
        """

    def files(self) -> list[Path]:
        """Return the files that the samples are read from, for staging; none where there is
        nothing to stage."""
        return []

    def local_path(self, path: str | Path) -> str:
        """Return where to read one of `files()`: its copy on the node's own disk, where `stage=node`
        has made one, else the file itself. Ask before you open a file."""
        return self.copy_of(path) if self.copy_of else os.fspath(path)

    def blocks(self) -> Blocks | None:
        """Return which samples are cheap to read together; None where any order costs the same."""
        return None
