"""CosmoFlow's files: TFRecords, one sample each, in the folders train and validation.

A record is a tf.train.Example with `x`, the counts as little-endian int16 of the shape (size, size,
size, 4), and `y`, four floats. The file is compressed with gzip, or plain as in the first version of
the set. generate.py writes such files, and the recipe reads them with `read_sample`. numpy is
imported only where a file is opened.
"""

import gzip
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rampup.core.tfevents import masked_crc, message, read_fields
from rampup.errors import RampupError, Refused

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from rampup.datasets.cosmoflow.universe import Sample

TRAIN, VALIDATION = "train", "validation"
PATTERN = "*.tfrecord*"
CHANNELS = 4
TARGETS = 4
LEVEL = 6
"""How hard gzip tries: counts of particles hardly get smaller beyond it."""
GZIP = b"\x1f\x8b"
FEATURES, FEATURE, NAME, VALUE = 1, 1, 1, 2
"""Places in the messages of a tf.train.Example."""
BYTES, FLOATS = 1, 2
FIRST = 1
"""The place of the values in a list of bytes or floats."""
HINT = "copy it again, or take it out of the folder"


class CosmoFlow(NamedTuple):
    """A set: its files, and what they have in common."""

    size: int
    """Voxels along each axis of a cube."""
    train: list[Path]
    validation: list[Path]


def list_samples(folder: Path) -> list[Path]:
    """Return the files of samples, in the order of their names."""
    return sorted(folder.glob(PATTERN))


def check_cosmoflow(folder: Path) -> None:
    """Refuse a folder that is not a set of CosmoFlow, with what to type. No file is opened."""
    if not folder.is_dir():
        raise Refused(
            f"CosmoFlow's data: there is no folder {folder}",
            "rampup fetch cosmoflow-demo makes a small set, which is used without data=",
        )
    for part in (TRAIN, VALIDATION):
        if next((folder / part).glob(PATTERN), None) is None:
            raise Refused(
                f"CosmoFlow's data: {folder / part} has no file *.tfrecord",
                "data= is the folder that contains train/ and validation/",
            )


def read_cosmoflow(folder: Path) -> CosmoFlow:
    """Return what a set consists of. One sample is opened."""
    check_cosmoflow(folder)
    train, validation = (list_samples(folder / part) for part in (TRAIN, VALIDATION))
    counts, _ = read_sample(train[0])
    return CosmoFlow(len(counts), train, validation)


# one file -----------------------------------------------------------------------------------------


def write_sample(path: Path, sample: "Sample") -> None:
    counts = sample.cubes.astype("<i2").tobytes()
    targets = b"".join(struct.pack("<f", value) for value in sample.targets.tolist())
    features = (
        _feature(b"x", message(BYTES, message(FIRST, counts))),
        _feature(b"y", message(FLOATS, message(FIRST, targets))),
    )
    example = message(FEATURES, *features)
    head = struct.pack("<Q", len(example))
    record = (head, _masked(head), example, _masked(example))
    path.write_bytes(gzip.compress(b"".join(record), LEVEL, mtime=0))


def _feature(name: bytes, value: bytes) -> bytes:
    return message(FEATURE, message(NAME, name), message(VALUE, value))


def read_sample(path: Path) -> "tuple[NDArray[np.int16], NDArray[np.float32]]":
    """Return the counts and the targets of one file. What is damaged is named, never used."""
    import numpy as np

    try:
        x, y = _read_example(read_record(path), path)
    except (struct.error, IndexError, ValueError) as error:
        raise _damaged(path, f"not a tf.train.Example: {error}") from None
    counts = np.frombuffer(x, "<i2")
    size = round((counts.size / CHANNELS) ** (1 / 3))
    if size < 1 or size**3 * CHANNELS != counts.size:
        raise _damaged(path, f"x has {counts.size} numbers, which is not a cube with 4 redshifts")
    targets = np.frombuffer(y, "<f4")
    if targets.size != TARGETS:
        raise _damaged(path, f"y has {targets.size} numbers, not {TARGETS}")
    return counts.reshape(size, size, size, CHANNELS), targets


def read_record(path: Path) -> bytes:
    """Return the first record of a file, whose checksums were compared."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise RampupError(f"{path}: can't be read: {error.strerror}", HINT) from None
    if content[:2] == GZIP:
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError, zlib.error) as error:
            raise _damaged(path, f"not a complete gzip file: {error}") from None
    if len(content) < 12 or content[8:12] != _masked(content[:8]):
        raise _damaged(path, "not a TFRecord, or its length is damaged")
    end = 12 + struct.unpack("<Q", content[:8])[0]
    record = content[12:end]
    if len(content) < end + 4:
        raise _damaged(path, "the file is cut off")
    if content[end : end + 4] != _masked(record):
        raise _damaged(path, "the checksum of its record is wrong")
    return record


def _read_example(record: bytes, path: Path) -> tuple[bytes, bytes]:
    found: dict[bytes, bytes] = {}
    for features in _values(record, FEATURES):
        for feature in _values(features, FEATURE):
            parts = dict(read_fields(feature))
            found[parts.get(NAME, b"")] = parts.get(VALUE, b"")
    for name, kind in ((b"x", BYTES), (b"y", FLOATS)):
        if name not in found:
            raise _damaged(path, f"it has no feature {name.decode()!r}")
        inner = [value for part in _values(found[name], kind) for value in _values(part, FIRST)]
        found[name] = b"".join(inner)
    return found[b"x"], found[b"y"]


def _values(data: bytes, place: int) -> Iterator[bytes]:
    return (value for at, value in read_fields(data) if at == place)


def _masked(data: bytes) -> bytes:
    """Return the checksum of TFRecords, by the library where it is: it is far quicker."""
    try:
        import crc32c
    except ImportError:
        return struct.pack("<I", masked_crc(data))
    crc = crc32c.crc32c(data)
    return struct.pack("<I", (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF)


def _damaged(path: Path, what: str) -> RampupError:
    return RampupError(f"{path}: {what}", HINT)
