"""Compressed chunks of HDF5, inflated while other threads may use the library.

The library hands out a chunk as it lies in the file, which is quick. What takes the time, undoing
gzip and the shuffling of bytes, happens here, with Intel's inflate where it is installed. Whatever
is out of the ordinary returns False, and the library reads it.
"""

import zlib
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from rampup.data.formats.columns import Array
from rampup.data.formats.inflate import inflate_all


class Chunks(NamedTuple):
    """How a dataset is cut into chunks, and what was done to them."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    shuffled: bool


def describe_chunks(dataset: Any, h5z: Any) -> Chunks | None:
    """Return how to undo the filters of a dataset: gzip, also of shuffled bytes, or None."""
    made = dataset.id.get_create_plist()
    filters = [made.get_filter(number)[0] for number in range(made.get_nfilters())]
    known = ([h5z.FILTER_DEFLATE], [h5z.FILTER_SHUFFLE, h5z.FILTER_DEFLATE])
    if not dataset.chunks or filters not in known or dataset.dtype.kind not in "iuf":
        return None
    return Chunks(dataset.chunks, dataset.dtype, len(filters) == 2)


def fetch_chunks(dataset: Any, chunks: Chunks, begin: int, end: int) -> list[tuple[Any, bytes]]:
    """Return the compressed chunks of some rows, with the place of each; only this needs the
    library. Nothing is returned where a chunk is missing or was not compressed."""
    firsts = range(begin // chunks.shape[0] * chunks.shape[0], end, chunks.shape[0])
    others = [range(0, size, step) for size, step in _sizes(dataset.shape, chunks.shape)]
    found = []
    for place in product(firsts, *others):
        try:
            mask, content = dataset.id.read_direct_chunk(place)
        except (OSError, ValueError, RuntimeError, MemoryError):  # such as: it is missing
            return []
        if mask:
            return []
        found.append((place, content))
    return found


def inflate_chunks(found: list[tuple[Any, bytes]], chunks: Chunks, begin: int, into: Array) -> bool:
    """Put the chunks where they belong in rows that start with `begin`; True if all was well."""
    size = int(np.prod(chunks.shape)) * chunks.dtype.itemsize
    for place, content in found:
        try:
            plain = inflate_all(content, size)
        except (zlib.error, ValueError):
            return False
        if plain is None or len(plain) != size:
            return False
        _paste(_to_numbers(plain, chunks), place, begin, into)
    return bool(found)


def _sizes(shape: tuple[int, ...], chunk: tuple[int, ...]) -> list[tuple[int, int]]:
    return list(zip(shape[1:], chunk[1:], strict=True))


def _to_numbers(plain: bytes, chunks: Chunks) -> Array:
    if not chunks.shuffled or chunks.dtype.itemsize == 1:
        return np.frombuffer(plain, chunks.dtype).reshape(chunks.shape)
    parts = np.frombuffer(plain, np.uint8).reshape(chunks.dtype.itemsize, -1)
    return np.ascontiguousarray(parts.T).view(chunks.dtype).reshape(chunks.shape)


def _paste(numbers: Array, place: tuple[int, ...], begin: int, into: Array) -> None:
    """Copy the part of a chunk that lies within the rows; chunks may reach beyond the data."""
    row = place[0] - begin
    target = [slice(max(row, 0), row + numbers.shape[0])]
    source = [slice(max(-row, 0), None)]
    for at, size in zip(place[1:], numbers.shape[1:], strict=True):
        target.append(slice(at, at + size))
        source.append(slice(0, None))
    room = into[tuple(target)]
    fitting = tuple(
        slice(each.start, each.start + size) for each, size in zip(source, room.shape, strict=True)
    )
    np.copyto(room, numbers[fitting], casting="unsafe")
