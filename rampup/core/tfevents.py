"""TensorBoard's event files, byte by byte: protobuf messages in TFRecord frames, encoded here by
hand.

runtime/telemetry/tensorboard.py writes them while a job runs, export/tensorboard.py from the rows
of an old run; runtime/watch/files.py reads those of other people's programs. Pure functions between
values and bytes: no file is opened here, and neither TensorFlow nor TensorBoard has to be installed
where a job runs.

Field numbers are those of event.proto, summary.proto, tensor.proto, graph.proto and of the plugins
hparams, pr_curves and text.
"""

import functools
import itertools
import math
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from rampup.core.metrics import to_float

VARINT, EIGHT_BYTES, LENGTH, FOUR_BYTES = 0, 1, 2, 5
"""How a field is stored."""
FLOAT, DOUBLE, STRING = 1, 2, 7
"""DT_FLOAT, DT_DOUBLE and DT_STRING, types of a tensor."""
NO_TENSOR = b"\x08\x01\x12\x02\x12\x00"
"""A vector of no floats: some summaries are only metadata, but loaders want a value."""
STARTED, SUCCESS = 1, 1
PNG = b"\x89PNG\r\n\x1a\n"
LARGEST_PNG = 1_000_000
"""Bytes. The check sum of so many takes 0.2 s, of a thread that shares its processor with the
training."""
KEPT = (b"pr_curves", b"text")
"""Plugins whose data is in the event files alone."""
SMALLEST_COUNT = 1e-7
"""As in TensorBoard's own writer: nothing is divided by zero."""

# frames -------------------------------------------------------------------------------------------


def _crc_table() -> list[int]:
    """Return the table of CRC-32C, which zlib does not have."""
    found = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
        found.append(value)
    return found


_TABLE = _crc_table()


def masked_crc(data: bytes) -> int:
    crc, table = 0xFFFFFFFF, _TABLE
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


@functools.lru_cache(maxsize=1024)
def _head(length: int) -> bytes:
    packed = struct.pack("<Q", length)
    return packed + struct.pack("<I", masked_crc(packed))


def frame(record: bytes) -> bytes:
    return b"".join((_head(len(record)), record, struct.pack("<I", masked_crc(record))))


def read_records(data: bytes) -> Iterator[bytes]:
    """Yield the records of a file, up to the first that is torn or damaged."""
    at = 0
    while at + 12 <= len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        end = at + 12 + length
        if data[at : at + 12] != _head(length) or end + 4 > len(data):
            return
        record = data[at + 12 : end]
        if data[end : end + 4] != struct.pack("<I", masked_crc(record)):
            return
        yield record
        at = end + 4


# protobuf -----------------------------------------------------------------------------------------


def varint(value: int) -> bytes:
    value &= 0xFFFFFFFFFFFFFFFF
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def whole(place: int, value: int) -> bytes:
    return varint(place << 3 | VARINT) + varint(value)


def double(place: int, value: float) -> bytes:
    return varint(place << 3 | EIGHT_BYTES) + struct.pack("<d", value)


def message(place: int, *parts: bytes) -> bytes:
    """Encode a field that holds bytes, text, or another message made of such parts."""
    data = b"".join(parts)
    return varint(place << 3 | LENGTH) + varint(len(data)) + data


def text(place: int, value: str) -> bytes:
    return message(place, value.encode("utf-8", "replace"))


def single(value: float) -> bytes:
    """Encode four bytes, as TensorBoard keeps scalars; a value too large for them is infinite."""
    try:
        return struct.pack("<f", value)
    except OverflowError:
        return struct.pack("<f", math.copysign(math.inf, value))


def read_fields(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the fields of a message that are bytes, text or messages themselves."""
    for place, kind, content, _ in read_all_fields(data):
        if kind == LENGTH:
            yield place, content


def read_all_fields(data: bytes) -> Iterator[tuple[int, int, bytes, int]]:
    """Yield the place, the kind, the bytes and the whole number of every field of a message."""
    at = 0
    while at < len(data):
        key, at = _read_varint(data, at)
        kind, content, value = key & 7, b"", 0
        if kind == VARINT:
            value, at = _read_varint(data, at)
        elif kind == LENGTH:
            length, at = _read_varint(data, at)
            content = data[at : at + length]
            at += length
        elif kind in (EIGHT_BYTES, FOUR_BYTES):
            size = 8 if kind == EIGHT_BYTES else 4
            content = data[at : at + size]
            at += size
        else:
            raise ValueError(f"{kind} is not a kind of field")
        yield key >> 3, kind, content, value


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data):
            raise ValueError("the message ends in the middle of a number")
        value |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if data[at - 1] < 0x80:
            return value, at


# events -------------------------------------------------------------------------------------------


def event(t: float, step: int, *parts: bytes) -> bytes:
    """Encode one record: when, at which step, and one of the contents below."""
    return frame(b"".join((double(1, t), whole(2, step) if step else b"", *parts)))


def version(t: float) -> bytes:
    """Encode the first record of every file."""
    return event(t, 0, text(3, "brain.Event:2"))


def session_start(t: float, step: int) -> bytes:
    """Encode the start of an attempt. TensorBoard drops what earlier attempts have written at this
    step and after it."""
    return event(t, step, message(7, whole(1, STARTED)))


def scalars(t: float, step: int, values: Iterable[tuple[str, float]]) -> bytes:
    return event(
        t,
        step,
        message(5, *(message(1, _scalar_tag(tag), single(value)) for tag, value in values)),
    )


@functools.lru_cache(maxsize=4096)
def _scalar_tag(tag: str) -> bytes:
    return text(1, tag) + varint(2 << 3 | FOUR_BYTES)


def _plugin(name: str, content: bytes) -> bytes:
    return message(9, message(1, text(1, name), message(2, content)))


# hyper-parameters ---------------------------------------------------------------------------------


def hparams_start(t: float, group: str, settings: Mapping[str, Any]) -> bytes:
    """Encode what the HParams tab shows of a run. A setting that is not set is left out; a list is
    shown as text."""
    known = {str(name): value for name, value in settings.items() if value is not None}
    entries = [
        message(1, text(1, name), message(2, _hparam(known[name]))) for name in sorted(known)
    ]
    return _hparams(
        t, "_hparams_/session_start_info", message(3, *entries, text(4, group), double(5, t))
    )


def hparams_end(t: float) -> bytes:
    """Encode that the run has completed."""
    return _hparams(t, "_hparams_/session_end_info", message(4, whole(1, SUCCESS), double(2, t)))


def _hparams(t: float, tag: str, content: bytes) -> bytes:
    return event(
        t,
        0,
        message(5, message(1, text(1, tag), _plugin("hparams", content), message(8, NO_TENSOR))),
    )


def _hparam(value: Any) -> bytes:
    if isinstance(value, bool):
        return whole(4, int(value))
    if isinstance(value, int | float):
        return double(2, to_float(value))
    return text(3, str(value))


# pictures and curves ------------------------------------------------------------------------------


def image(t: float, step: int, tag: str, png: bytes) -> bytes:
    if not png.startswith(PNG) or len(png) < 26:
        raise ValueError("it is not a PNG")
    if len(png) > LARGEST_PNG:
        raise ValueError(
            f"{len(png):,} bytes are too many for a picture, {LARGEST_PNG:,} are taken: draw it smaller"
        )
    width, height, _, colours = struct.unpack_from(">IIBB", png, 16)
    channels = {0: 1, 2: 3, 3: 3, 4: 2, 6: 4}.get(colours, 3)
    picture = message(4, whole(1, height), whole(2, width), whole(3, channels), message(4, png))
    return event(t, step, message(5, message(1, text(1, tag), picture)))


def pr_curve(t: float, step: int, tag: str, counts: Sequence[Sequence[float]]) -> bytes:
    """`counts`: true positives, false positives, true negatives, false negatives, at thresholds
    from 0 to 1."""
    if len(counts) != 4 or len({len(row) for row in counts}) != 1 or len(counts[0]) < 2:
        raise ValueError(
            "it needs four lists of counts, of one length, with two thresholds or more"
        )
    true, false, _, missed = counts
    precision = [tp / max(SMALLEST_COUNT, tp + fp) for tp, fp in zip(true, false, strict=True)]
    recall = [tp / max(SMALLEST_COUNT, tp + fn) for tp, fn in zip(true, missed, strict=True)]
    cells = b"".join(single(value) for row in (*counts, precision, recall) for value in row)
    shape = message(2, *(message(2, whole(1, size)) for size in (6, len(true))))
    tensor = message(8, whole(1, FLOAT), shape, message(4, cells))
    metadata = _plugin("pr_curves", whole(2, len(true)))
    return event(t, step, message(5, message(1, text(1, tag), metadata, tensor)))


def histogram(
    t: float, step: int, tag: str, counts: Sequence[int], edges: Sequence[float], squares: float
) -> bytes:
    """So many values lie between each two neighbouring edges; `squares` is the sum of their
    squares."""
    if len(edges) != len(counts) + 1 or not counts:
        raise ValueError("it needs one edge more than counts")
    middles = [(low + high) / 2 for low, high in itertools.pairwise(edges)]
    total = sum(count * middle for count, middle in zip(counts, middles, strict=True))
    numbers = (edges[0], edges[-1], float(sum(counts)), total, squares)
    parts = [double(place, value) for place, value in enumerate(numbers, 1)]
    parts += [
        message(6, struct.pack(f"<{len(counts)}d", *edges[1:])),
        message(7, struct.pack(f"<{len(counts)}d", *counts)),
    ]
    return event(t, step, message(5, message(1, text(1, tag), message(5, *parts))))


def markdown(t: float, step: int, tag: str, source: str) -> bytes:
    """Encode what the Text tab shows."""
    tensor = message(8, whole(1, STRING), message(2), text(8, source))
    return event(t, step, message(5, message(1, text(1, tag), _plugin("text", b""), tensor)))


class Node(NamedTuple):
    """A node in the graph of a model. Slashes in the name make boxes that can be opened."""

    name: str
    kind: str
    inputs: Sequence[str]
    note: str = ""


def graph(t: float, nodes: Sequence[Node]) -> bytes:
    return event(t, 0, message(4, *(_node(node) for node in nodes)))


def _node(node: Node) -> bytes:
    note = message(5, text(1, "about"), message(2, text(2, node.note))) if node.note else b""
    return message(
        1, text(1, node.name), text(2, node.kind), *(text(3, name) for name in node.inputs), note
    )


def is_picture(record: bytes) -> bool:
    """Return whether a record holds an image, a histogram, a graph, a text or a PR curve: anything
    that can't be made again from rows of metrics."""
    for place, content in read_fields(record):
        if place == 4:
            return True
        for _, value in read_fields(content) if place == 5 else ():
            if any(
                inner in (4, 5) or (inner == 9 and _plugin_name(it) in KEPT)
                for inner, it in read_fields(value)
            ):
                return True
    return False


def _plugin_name(metadata: bytes) -> bytes:
    data = next((content for place, content in read_fields(metadata) if place == 1), b"")
    return next((content for place, content in read_fields(data) if place == 1), b"")


# reading scalars ----------------------------------------------------------------------------------


def read_scalars(record: bytes) -> tuple[int, list[tuple[str, float]]]:
    """Return the step of an event and its scalars, whether they are simple values, as torch writes
    them, or tensors, as TensorFlow does."""
    step, found = 0, []
    for place, kind, content, value in read_all_fields(record):
        if place == 2 and kind == VARINT:
            step = value if value < 1 << 63 else value - (1 << 64)
        elif place == 5:
            for inner, summary in read_fields(content):
                scalar = _read_value(summary) if inner == 1 else None
                if scalar is not None:
                    found.append(scalar)
    return step, found


def _read_value(summary: bytes) -> tuple[str, float] | None:
    """Return the tag and the number of one value of a summary; None for pictures and the like."""
    tag, number, plugin = "", None, b"scalars"
    for place, kind, content, _ in read_all_fields(summary):
        if place == 1:
            tag = content.decode("utf-8", "replace")
        elif place == 2 and kind == FOUR_BYTES:
            (number,) = struct.unpack("<f", content)
        elif place == 8:
            number = _read_tensor(content)
        elif place == 9:
            plugin = _plugin_name(content) or plugin
    if number is None or not tag or plugin != b"scalars":
        return None
    return tag, number


def _read_tensor(tensor: bytes) -> float | None:
    """Return the number of a tensor that holds one float or double; None for any other."""
    kind, numbers = 0, b""
    for place, _, content, value in read_all_fields(tensor):
        if place == 1:
            kind = value
        elif place in (4, 5, 6):  # its bytes, floats, or doubles
            numbers = content
    if kind == FLOAT and len(numbers) == 4:
        return float(struct.unpack("<f", numbers)[0])
    if kind == DOUBLE and len(numbers) == 8:
        return float(struct.unpack("<d", numbers)[0])
    return None
