"""JSON on disk: whole files that are replaced atomically, and files of records that only grow.

Everything that is written into a run directory by the control side goes through here, and every reader too: it skips
a torn last line, and takes what can't be read for nothing.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

Record = dict[str, Any]

RESERVED_BYTES = 2_048


def write_json(path: Path, value: Any) -> None:
    """Replace the file as a whole: a reader sees the old one or the new one, also after a crash."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    with open(beside, "w", encoding="utf-8") as file:
        json.dump(value, file, indent=1)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, path)


def write_reserved(path: Path, value: Record) -> None:
    """Like write_json, with room for more: `overwrite` then works on a full disk too."""
    write_json(path, value)
    with open(path, "a", encoding="utf-8") as file:
        file.write(" " * RESERVED_BYTES + "\n")


def overwrite(path: Path, value: Record) -> None:
    """Replace a reserved file as a whole; on a full disk in place, with the longest text cut to what fits."""
    try:
        write_json(path, value)
    except OSError:
        room = path.stat().st_size
        cut = {key: text[:500] if isinstance(text, str) else text for key, text in value.items()}
        with open(path, "r+b") as file:
            file.write(json.dumps(cut).encode().ljust(room))


def read_json(path: Path) -> Record:
    """The object in a file; empty where there is none, or none that can be read."""
    try:
        with open(path, "rb") as file:
            value = decode(file.read())
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def decode(data: bytes) -> Any:
    """Quick first; the slow way also takes what a shell may pass in but JSON does not have: bytes that are no text."""
    try:
        return msgspec.json.decode(data)
    except msgspec.DecodeError:
        return json.loads(data)


def append_json(path: Path, value: Record) -> None:
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(value) + "\n")


def read_jsonl(path: Path, tail_bytes: int | None = None) -> Iterator[Record]:
    """The records of a growing file, or of its end, without torn lines."""
    try:
        with open(path, "rb") as file:
            if tail_bytes is not None:
                file.seek(max(0, file.seek(0, os.SEEK_END) - tail_bytes))
            data = file.read()
    except OSError:
        return
    for line in data.splitlines():
        try:
            value = decode(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            yield value
