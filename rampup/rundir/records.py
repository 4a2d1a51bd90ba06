"""JSON on disk: whole files that are replaced atomically, and files of records that only grow.

Everything that the control side writes into a run directory goes through here, and so does every
reader: it skips a torn last line, and treats what can't be read as empty. Files that a user names
with --out are written here too. Nothing here knows the name of a file.
"""

import contextlib
import errno
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from rampup.errors import Refused
from rampup.rundir import opening

Record = dict[str, Any]

RESERVED_BYTES = 2_048
LARGEST_OBJECT = 16 * 2**20
DENSE_BYTES, OBJECT_BYTES = 4 * 2**20, 12
"""A larger file with an object in every few bytes, such as `[],[],...`, would take thirty times its
size in memory. No run writes one."""
LINES: "msgspec.json.Decoder[Record]" = msgspec.json.Decoder(dict)
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def write_json(path: Path, value: Any) -> None:
    """Replace the file as a whole: a reader sees the old one or the new one, also after a crash."""
    write_text(path, format_json(value))


def format_json(value: Any) -> str:
    return json.dumps(value, indent=1) + "\n"


def write_new(path: Path, value: Any) -> None:
    """Write a file of a directory that nobody sees yet. The caller may `sync_tree` before it shows
    the directory."""
    path.write_text(format_json(value), encoding="utf-8")


def sync(path: Path) -> None:
    """Bring a file or the entries of a directory to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(directory: Path) -> None:
    """Bring a directory and all below it to the disk: a crash after that leaves nothing empty."""
    for folder, _, names in os.walk(directory):
        for name in names:
            path = Path(folder, name)
            if not path.is_symlink() and path.is_file():
                sync(path)
        sync(Path(folder))


def refuse_write(path: Path, error: OSError) -> Refused:
    """Return the refusal of what can't be written there, with the remedy for this error."""
    hint = "only the owner of a run can start or change it"
    if error.errno in FULL:
        hint = f"free some space: df -h {path}"
    elif error.errno == errno.EROFS:
        hint = "the disk is read-only: mount it for writing, or set RAMPUP_RUNS to another one"
    elif error.errno == errno.ELOOP:
        hint = f"it is a link to somewhere else: rm {path}"
    elif error.errno in (errno.EMLINK, errno.EINVAL):
        hint = f"rampup writes only into plain files of the run itself: ls -l {path}"
    return Refused(f"can't write {path}: {error.strerror}", hint)


def name_beside(path: Path) -> Path:
    """Return a name for a file that will take the place of another one. No two processes have the
    same, not even on two machines."""
    return path.with_name(f".{path.name[:200]}.{os.urandom(6).hex()}")


def write_text(path: Path, text: str) -> None:
    """Replace a file as a whole. Who may read it stays as it was."""
    beside = name_beside(path)
    try:
        with open(open_successor(beside, path), "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except OSError:
        with contextlib.suppress(OSError):  # the first error is the one to report
            beside.unlink()
        raise


def open_successor(beside: Path, path: Path) -> int:
    """Open a new file that takes the place of another: nobody may read it who might not read that
    one."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        mode = stat.S_IMODE(os.lstat(path).st_mode)
    except FileNotFoundError:
        return os.open(beside, flags, 0o666)
    descriptor = os.open(beside, flags, mode & 0o600)
    if stat.S_IMODE(os.fstat(descriptor).st_mode) != mode:
        os.fchmod(descriptor, mode)
    return descriptor


def write_user_file(path: Path, content: bytes) -> None:
    """Write a file that a user named: it appears whole or not at all, and a link stays: the file
    that it points to is replaced.

    Into a pipe or a terminal (/dev/stdout) it is written as it is: there is nothing that could be
    replaced.
    """
    try:
        if is_stream(path):
            path.write_bytes(content)
        else:
            replace_file(Path(os.path.realpath(path)), content)
    except OSError as error:
        raise Refused(
            f"can't write {path}: {error.strerror}", "--out FILE, in a directory that you can write"
        ) from None


def is_stream(path: Path) -> bool:
    """Return whether a path is a pipe or a character device. A block device and a directory are
    errors."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return False
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "it is a directory")
    if not (stat.S_ISREG(mode) or stat.S_ISFIFO(mode) or stat.S_ISCHR(mode)):
        raise OSError(errno.EINVAL, "it is not a file")
    return not stat.S_ISREG(mode)


def write_own_file(path: Path, content: bytes) -> None:
    """Write a file of a run as a whole: what has its name is replaced, and a link never followed."""
    try:
        replace_file(path, content)
    except OSError as error:
        raise refuse_write(path, error) from None


def replace_file(path: Path, content: bytes) -> None:
    # fits where the name itself only just does
    beside = path.with_name(f".rampup-{os.urandom(6).hex()}.making")
    try:
        beside.write_bytes(content)
        os.replace(beside, path)
    except OSError:
        with contextlib.suppress(OSError):  # the first error is the one to report
            beside.unlink()
        raise


def write_reserved(path: Path, value: Record) -> None:
    """Like write_json, with room to grow: `overwrite` then works on a full disk too."""
    write_json(path, value)
    with open(path, "a", encoding="utf-8") as file:
        file.write(" " * RESERVED_BYTES + "\n")


def overwrite(path: Path, value: Record) -> None:
    """Replace a reserved file as a whole; on a full disk in place, with the longest text cut to
    what fits."""
    try:
        write_json(path, value)
    except OSError:
        room = path.stat().st_size
        cut = {key: text[:500] if isinstance(text, str) else text for key, text in value.items()}
        with open(path, "r+b") as file:
            file.write(json.dumps(cut).encode().ljust(room))


def read_json(path: str | Path) -> Record:
    """Return the object in a file; empty where there is none, or none that can be read."""
    try:
        data = opening.read(path, most=LARGEST_OBJECT)
        value = {} if is_dense(data) else decode(data)
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def read_bytes(path: str | Path, tail_bytes: int | None = None, most: int | None = None) -> bytes:
    """Return a file, or the whole lines at its end. Of one that is too large for the memory of a
    reader, or larger than `most`, the end counts."""
    most = opening.MOST_BYTES if most is None else most
    try:
        data = opening.read(path, tail_bytes, most)
    except OSError as error:
        if error.errno != errno.EFBIG:
            raise
        data = opening.read(path, most)
    return data[-DENSE_BYTES:].partition(b"\n")[2] if is_dense(data) else data


def is_dense(data: bytes) -> bool:
    """Return whether a text of JSON holds far more objects than a run writes."""
    if len(data) <= DENSE_BYTES:
        return False
    return OBJECT_BYTES * (data.count(b"{") + data.count(b"[")) > len(data)


def decode(data: bytes) -> Any:
    """Decode quickly, or else with Python's own module, which also takes what a shell may pass in
    but JSON does not have: bytes that are not text."""
    try:
        return msgspec.json.decode(data)
    except msgspec.DecodeError:
        return json.loads(data)


def append_json(path: Path, value: Record, durable: bool = False, mode: int = 0o666) -> None:
    """Add a record in one write. A line that was torn before, on a full disk, stays alone. `mode` is
    that of a new file."""
    line = json.dumps(value).encode() + b"\n"
    file = opening.open_to_change(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, mode)
    try:
        size = os.fstat(file).st_size
        if size and os.pread(file, 1, size - 1) != b"\n":
            line = b"\n" + line
        if os.write(file, line) < len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if durable:
            os.fsync(file)
    finally:
        os.close(file)
    if durable and not size:
        sync(path.parent)


def read_jsonl(
    path: str | Path, tail_bytes: int | None = None, most: int | None = None
) -> list[Record]:
    """Return the records of a growing file, or of its end, without torn lines."""
    try:
        return decode_lines(read_bytes(path, tail_bytes, most))
    except OSError:
        return []


def decode_lines(data: bytes) -> list[Record]:
    """Decode all lines at once, which is quick for millions; one by one where any is torn, or is not a
    record."""
    try:
        return LINES.decode_lines(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return list(_sound_lines(data))


def _sound_lines(data: bytes) -> Iterator[Record]:
    for line in data.splitlines():
        try:
            value = decode(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            yield value
