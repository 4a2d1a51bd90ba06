"""Columns of samples: how files hold their numbers, and how the model wants them.

A reader of a file format gets its columns from the user and turns what it has read into what the
engine asked for, piece by piece: a piece that was just read or inflated is still in the CPU's
cache. All of this happens in the reader threads, in numpy calls that release the interpreter.
"""

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from rampup.data.formats.disk import OpenFile, kept_buffer
from rampup.data.reader import Field, SampleReader
from rampup.errors import RampupError

PIECE_BYTES = 1 << 18
"""Small enough for the cache of a core, large enough that a system call does not count."""
TILE = 4096
"""Numbers per row when a value per channel is applied: numpy is slow on short rows."""

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Column(Field):
    """One array of a sample: its shape, its type for the model, and how to get there from the file.

    The steps run in this order: `log1p`, `subtract`, `divide`. Their values are numbers or arrays
    that broadcast to the shape, for example one per channel. `apply` is for everything else.
    """

    stored: DTypeLike | None = None
    """The type of the numbers in the file; without it the same as `dtype`."""
    log1p: bool = False
    subtract: ArrayLike | None = None
    divide: ArrayLike | None = None
    apply: Callable[[Array, Array], None] | None = None
    """A function of your own: it gets one sample as stored and writes into the second array."""

    def as_kept(self) -> "Column":
        """Return how the numbers of the file are kept: with apply= done, and nothing else."""
        if self.apply is not None:
            return self
        return Column(self.shape, self.dtype if self.stored is None else self.stored)

    def from_kept(self) -> "Column":
        """Return what is left to do with numbers that were kept."""
        if self.apply is not None:
            return Column(self.shape, self.dtype)
        return replace(self, stored=self.as_kept().dtype)

    def __post_init__(self) -> None:
        changed = self.log1p or self.subtract is not None or self.divide is not None
        if changed and np.dtype(self.dtype).kind != "f":
            raise RampupError(
                f"a column of {np.dtype(self.dtype)} can't be scaled",
                "give it a floating-point dtype, and the type in the file as stored=",
            )
        if changed and self.apply is not None:
            raise RampupError(
                "a column can't have apply= together with log1p=, subtract= or divide=",
                "do all of it in apply",
            )


class Decoder:
    """The work of one column: numbers of whole samples in, numbers for the model out."""

    def __init__(self, name: str, column: Column) -> None:
        self.name = name
        self.shape = column.shape
        self.size = math.prod(column.shape)
        self.dtype = np.dtype(column.dtype)
        self.stored = np.dtype(column.dtype if column.stored is None else column.stored)
        self.declared = column.stored is not None
        self.has_apply = column.apply is not None
        self.stored_bytes = self.size * self.stored.itemsize
        self._apply = column.apply
        self._log1p = column.log1p
        self._subtract = self._operand("subtract", column.subtract)
        self._divide = self._operand("divide", column.divide)
        if self._divide is not None and not self._divide.all():
            raise RampupError(
                f"column {name!r} would be divided by zero: divide= contains 0",
                "a channel that never changes has no range; divide it by 1",
            )
        self._changes = self._log1p or self._subtract is not None or self._divide is not None
        self._piece = self._piece_size()

    def decode(self, stored: Array, out: Array, path: str = "") -> None:
        """Turn the samples in `stored` into `out`; both are arrays of as many whole samples. `path`
        is the file that they are from."""
        source, target = stored.reshape(-1), out.reshape(-1)
        if self._apply is not None:
            self._apply_to_each(source, target)
            return
        for begin in range(0, target.size, self._piece):
            piece = target[begin : begin + self._piece]
            if stored is not out:
                self._convert(source[begin : begin + self._piece], piece, path)
            self._transform(piece, begin)

    def read(
        self, file: OpenFile, offset: int, out: Array, stored: np.dtype[Any] | None = None
    ) -> None:
        """Read the samples that begin at `offset` of a file; `out` has their number."""
        stored = self.stored if stored is None else stored
        target = out.reshape(-1)
        if self._apply is not None:
            source = kept_buffer(target.size * stored.itemsize)
            file.read(source, offset)
            self._apply_to_each(np.frombuffer(source, stored), target)
            return
        for begin in range(0, target.size, self._piece):
            piece = target[begin : begin + self._piece]
            at = offset + begin * stored.itemsize
            if stored == self.dtype:
                file.read(piece.data.cast("B"), at)
            else:
                source = kept_buffer(piece.size * stored.itemsize)
                file.read(source, at)
                self._convert(np.frombuffer(source, stored), piece, file.path)
            self._transform(piece, begin)

    def _convert(self, source: Array, target: Array, path: str) -> None:
        """Copy numbers as those of another type; one that an integer can't be is an error."""
        with np.errstate(all="ignore"):
            np.copyto(target, source, casting="unsafe")
        if target.dtype.kind == "f" or np.can_cast(source.dtype, target.dtype):
            return
        wrong = np.flatnonzero(target != source)
        if len(wrong):
            raise RampupError(
                f"{path}{': ' if path else ''}column {self.name!r} has {source[wrong[0]]}, "
                f"which does not fit into {target.dtype}",
                "give its Column a dtype that fits all numbers in the file",
            )

    def _apply_to_each(self, source: Array, target: Array) -> None:
        assert self._apply is not None
        shape = (-1, *self.shape)
        for one, out in zip(source.reshape(shape), target.reshape(shape), strict=True):
            self._apply(one, out)

    def _transform(self, piece: Array, begin: int) -> None:
        """Change numbers in place; the piece begins at number `begin` of the samples."""
        if not self._changes:
            return
        with np.errstate(all="ignore"):  # a NaN is the training's to report
            if self._log1p and self.stored.kind in "iu":
                np.add(piece, 1, out=piece)  # exact for counts, and log has a fast path everywhere
                np.log(piece, out=piece)
            elif self._log1p:
                np.log1p(piece, out=piece)
            if self._subtract is not None:
                _combine(np.subtract, piece, self._subtract, begin)
            if self._divide is not None:
                _combine(np.divide, piece, self._divide, begin)

    def _operand(self, name: str, value: ArrayLike | None) -> Array | None:
        """Return the values as a flat array that is repeated over the numbers of a sample."""
        if value is None:
            return None
        array = np.asarray(value, dtype=self.dtype)
        try:
            whole = np.broadcast_to(array, self.shape)
        except ValueError:
            raise RampupError(
                f"{name}= of column {self.name!r} has the shape {array.shape}, "
                f"which does not fit {self.shape}",
                "give one number, or an array that broadcasts to the shape of the column",
            ) from None
        if array.size == 1:
            return array.reshape(1)
        channels = self.shape[-1]
        if array.size == channels and array.shape[-1:] == (channels,):
            return np.tile(array.reshape(-1), max(1, TILE // channels))
        return whole.reshape(-1)

    def _piece_size(self) -> int:
        """Return how many numbers are worked on at once: whole periods of every operand."""
        wanted = PIECE_BYTES // self.dtype.itemsize
        periods = [len(each) for each in (self._subtract, self._divide) if each is not None]
        period = math.lcm(*(each for each in periods if each < self.size), 1)
        return max(1, wanted // period) * period


def _combine(operation: np.ufunc, piece: Array, operand: Array, begin: int) -> None:
    """Combine numbers with an operand that is repeated over them."""
    period = len(operand)
    if period == 1:
        operation(piece, operand[0], out=piece)
        return
    at, done = begin % period, 0
    if at == 0 and len(piece) >= period:
        done = len(piece) // period * period
        rows = piece[:done].reshape(-1, period)
        operation(rows, operand, out=rows)
    while done < len(piece):
        part = piece[done : done + period - at]
        operation(part, operand[at : at + len(part)], out=part)
        done, at = done + len(part), 0


class ColumnReader(SampleReader):
    """A reader whose samples consist of named columns.

    What it reads is kept between reads, or on a node's disk, as the numbers of the file: they are
    smaller than those of the model, and are turned into them in less time than it takes to read.
    """

    def __init__(self, columns: Mapping[str, Column]) -> None:
        if not columns:
            raise RampupError(
                f"{type(self).__name__} has no columns",
                "name what a sample consists of: {'name': Column(shape)}",
            )
        self.columns = dict(columns)
        self.fields = tuple(self.columns.values())
        self.decoders = tuple(Decoder(*each) for each in self.columns.items())
        """From the file to the model."""
        kept = {name: column.as_kept() for name, column in self.columns.items()}
        self.keepers = tuple(Decoder(*each) for each in kept.items())
        """From the file to the numbers that are kept."""
        finished = {name: column.from_kept() for name, column in self.columns.items()}
        self.finishers = tuple(Decoder(*each) for each in finished.items())
        """From the numbers that are kept to the model."""

        kept_plain = {each.name: Column(each.shape, each.dtype) for each in self.keepers}
        self.copiers = tuple(Decoder(*each) for each in kept_plain.items())
        """From the numbers that are kept to the same."""

    def read(self, indices: NDArray[np.int64], out: tuple[NDArray[np.generic], ...]) -> None:
        self._check(self.decoders, len(indices), out)
        self._fill(indices, self.decoders, out)

    def read_kept(self, indices: NDArray[np.int64], out: tuple[Array, ...]) -> None:
        """Read samples as the numbers that are worth keeping: see `keepers`."""
        self._check(self.keepers, len(indices), out)
        self._fill(indices, self.keepers, out)

    @property
    def kept_bytes(self) -> int:
        """Return the size of a sample as it is kept: its columns one after the other."""
        return sum(keeper.size * keeper.dtype.itemsize for keeper in self.keepers)

    def read_record(self, file: OpenFile, offset: int, row: int, out: tuple[Array, ...]) -> None:
        """Read one sample that was kept in a file of raw numbers into a row of the buffers."""
        for finisher, array in zip(self.finishers, out, strict=True):
            finisher.read(file, offset, array[row, ...])
            offset += finisher.stored_bytes

    @abstractmethod
    def _fill(
        self, indices: NDArray[np.int64], decoders: tuple[Decoder, ...], out: tuple[Array, ...]
    ) -> None:
        """Read the samples at `indices` into buffers that have the right shape."""

    def _check(
        self, decoders: tuple[Decoder, ...], count: int, out: tuple[NDArray[np.generic], ...]
    ) -> None:
        for decoder, array in zip(decoders, out, strict=True):
            if not array.flags.c_contiguous or array.shape != (count, *decoder.shape):
                raise ValueError(
                    f"column {decoder.name!r} needs a contiguous buffer of the shape "
                    f"{(count, *decoder.shape)}, not {array.shape}"
                )
