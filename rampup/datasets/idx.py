"""IDX files, the format of MNIST: two zero bytes, a type code, the number of dimensions, the sizes,
the values.

Recipes read arrays with `read_idx`; fetch.py and preflight call `read_header`, which needs no numpy
and reads a few bytes only. A file whose length does not match its header is refused before an array
is made of it.
"""

import os
import struct
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from rampup.errors import Refused

if TYPE_CHECKING:
    import numpy

DTYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
"""The type codes that the format defines, as numpy spells them. Values are big-endian."""
AGAIN = "copy or fetch the file again"


def read_header(path: str | Path) -> tuple[int, tuple[int, ...]]:
    """Return the type code and the shape, if the file's length agrees with them."""
    path = Path(path)
    try:
        with open(path, "rb") as file:
            code, shape = _parse_header(file, path.name)
            has = os.fstat(file.fileno()).st_size
    except OSError as error:
        raise Refused(f"can't read {path}: {error.strerror}", AGAIN) from None
    promised = _header_size(shape) + prod(shape) * int(DTYPES[code][-1])
    if has != promised:
        raise Refused(f"{path.name} has {has} bytes, its header promises {promised}", AGAIN)
    return code, shape


def _parse_header(file: BinaryIO, name: str) -> tuple[int, tuple[int, ...]]:
    magic = file.read(4)
    if magic[:2] == b"\x1f\x8b":
        raise Refused(f"{name} is still compressed with gzip", f"gunzip {name}")
    if len(magic) < 4 or magic[:2] != b"\0\0" or magic[2] not in DTYPES:
        raise Refused(
            f"{name} is not an IDX file: it starts with 0x{magic.hex()}, not 0x0000 and a type code",
            AGAIN,
        )
    dimensions = magic[3]
    sizes = file.read(4 * dimensions)
    if len(sizes) < 4 * dimensions:
        raise Refused(
            f"{name} ends inside its header: {4 + len(sizes)} bytes, {dimensions} dimensions need more",
            AGAIN,
        )
    return magic[2], struct.unpack(f">{dimensions}I", sizes)


def _header_size(shape: tuple[int, ...]) -> int:
    return 4 + 4 * len(shape)


def read_idx(path: str | Path) -> "numpy.ndarray[Any, Any]":
    """Return the file as a writable array of its shape, in this machine's byte order."""
    import numpy  # the control side asks for headers only and must not pay for it

    code, shape = read_header(path)
    stored = numpy.dtype(DTYPES[code])
    values = numpy.fromfile(path, dtype=stored, offset=_header_size(shape))
    return values.astype(stored.newbyteorder("="), copy=False).reshape(shape)
