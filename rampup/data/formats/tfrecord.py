"""Samples in TFRecord files, plain or compressed with gzip, one in each or many.

TensorFlow is not needed. A column is a feature of the Examples: a string of raw numbers, or a list
of floats or integers. The checksums of the format are verified.
"""

import threading
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rampup.data.formats.blocks import BLOCK_BYTES, CACHE_MB, Arrays, BlockReader
from rampup.data.formats.columns import Column, Decoder
from rampup.data.formats.disk import OpenFile, Stamp, listed
from rampup.data.formats.records import (
    Damaged,
    Records,
    decode_feature,
    parse_example,
    record_error,
)
from rampup.errors import RampupError, nearest


class TFRecords(BlockReader):
    """Samples in TFRecord files: a column is a feature of the Examples.

    `samples_per_file` says how many records each file has; with None they are counted, which reads
    every compressed file once. Of a compressed file with many records the whole is read at once.
    """

    def __init__(
        self,
        paths: Iterable[str | Path],
        columns: Mapping[str, Column],
        samples_per_file: int | None = 1,
        checksums: bool = True,
        cache_mb: int = CACHE_MB,
    ) -> None:
        super().__init__(columns, cache_mb)
        if samples_per_file is not None and samples_per_file < 1:
            raise RampupError(
                f"samples_per_file={samples_per_file} is not a number of samples",
                "give it 1 or more, or None to have them counted",
            )
        self._paths = listed(paths, "TFRecords")
        self._samples_per_file, self._checksums = samples_per_file, checksums
        self._pieces: NDArray[np.int64] = np.empty((0, 3), np.int64)
        """Of each block: the number of its file, its first record and the one after its last."""
        self._counts: NDArray[np.int64] = np.empty(0, np.int64)
        self._places: dict[int, tuple[Stamp, NDArray[np.int64]]] = {}
        """Of files that are not compressed: where each record begins."""
        self._looking = threading.Lock()

    def files(self) -> list[Path]:
        return [Path(path) for path in self._paths]

    def _survey(self) -> list[int]:
        numbers = np.arange(len(self._paths))
        if self._samples_per_file == 1:
            self._counts = np.ones(len(self._paths), np.int64)
            self._pieces = np.stack([numbers, 0 * numbers, 0 * numbers + 1], axis=1)
            return [1] * len(self._paths)
        pieces, counts = [], []
        for number in range(len(self._paths)):
            records = self._open(number)
            count = self._samples_per_file or _count(records)
            step = count if records.is_compressed else max(1, BLOCK_BYTES // self.kept_bytes)
            counts.append(count)
            for begin in range(0, count, max(1, step)):
                pieces.append((number, begin, min(begin + step, count)))
        self._counts = np.array(counts, np.int64)
        self._pieces = np.array(pieces, np.int64).reshape(-1, 3)
        return [end - begin for _, begin, end in pieces]

    def _open(self, number: int) -> Records:
        file = OpenFile(self.local_path(self._paths[number]))
        return Records(file, self._checksums, 8 * self.kept_bytes)

    def _read_block(self, block: int, decoders: tuple[Decoder, ...], out: Arrays) -> None:
        number, begin, end = self._pieces[block].tolist()
        records, count = self._open(number), int(self._counts[number])
        if begin and records.is_compressed:
            for _ in range(begin):
                records.skip()
        elif begin:
            records.seek(begin, self._place_of(number, begin))
        path = self._paths[number]
        for row in range(end - begin):
            content = records.read()
            if content is None:
                raise _miscounted(path, begin + row, count)
            _decode(path, begin + row, content, decoders, tuple(array[row, ...] for array in out))
        if end == count and records.skip():
            raise _miscounted(path, count + 1, count)

    def _place_of(self, number: int, record: int) -> int:
        """Return where a record begins; the first that asks goes through the file."""
        with self._looking:
            file = OpenFile(self.local_path(self._paths[number]))
            known = self._places.get(number)
            if known is None or known[0] != file.stamp():
                known = self._places[number] = (file.stamp(), self._find_places(number))
            if record >= len(known[1]):
                raise _miscounted(file.path, len(known[1]), int(self._counts[number]))
            return int(known[1][record])

    def _find_places(self, number: int) -> NDArray[np.int64]:
        records, places = self._open(number), [0]
        while records.skip():
            places.append(records.offset)
        return np.array(places[:-1], np.int64)


def _count(records: Records) -> int:
    while records.skip():
        pass
    return records.number


def _decode(
    path: str, number: int, content: memoryview, decoders: tuple[Decoder, ...], out: Arrays
) -> None:
    """Decode the columns of one Example into the rows for it."""
    try:
        features = parse_example(content)
    except Damaged as problem:
        raise record_error(path, number, str(problem)) from problem
    for decoder, row in zip(decoders, out, strict=True):
        if decoder.name not in features:
            raise RampupError(
                f"{path}: record {number} has no feature {decoder.name!r}",
                nearest(decoder.name, features),
            )
        try:
            numbers = decode_feature(features[decoder.name], decoder.stored)
        except Damaged as problem:
            raise RampupError(
                f"{path}: feature {decoder.name!r} of record {number}: {problem}",
                "compare the Column with what the files were written with",
            ) from problem
        if numbers.size != decoder.size:
            raise RampupError(
                f"{path}: feature {decoder.name!r} of record {number} has {numbers.size} numbers, "
                f"not {decoder.size} for the shape {decoder.shape}",
                "give its Column the shape, and as stored= the type, that the files have",
            )
        if decoder.has_apply:
            numbers = numbers.astype(decoder.stored, copy=False)
        decoder.decode(numbers, row, path)


def _miscounted(path: str, found: int, expected: int) -> RampupError:
    what = f"more than {expected}" if found > expected else f"only {found}"
    return RampupError(
        f"{path}: the file has {what} of {expected} records",
        "set samples_per_file to the number of records in each file, or to None to count them",
    )
