"""Opening what lies in a run directory, which anybody may have written.

A link is never followed, so that nothing outside is read or changed. Only regular files count: a
FIFO would block its reader for ever, and a device never ends. What is read is bounded, and the
holes of a sparse file are passed over. Every reader and writer of a run opens its files through
here; files that a user names on the command line are opened as usual.
"""

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

AS_IT_IS = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
MOST_BYTES = 256 * 2**20
"""More is never read into memory: of a file that grows its end, of any other nothing."""
FROM_BYTES = 2**20
"""In smaller files nobody looks for holes."""
PART_BYTES = 2**20


def open_file(path: str | Path, flags: int = os.O_RDONLY, mode: int = 0o666) -> int:
    """Open a regular file of a run, and return its descriptor."""
    return _open_and_look(path, flags, mode)[0]


def _open_and_look(path: str | Path, flags: int, mode: int = 0o666) -> tuple[int, os.stat_result]:
    """Return the descriptor of a regular file, and what the file system says of it."""
    try:
        descriptor = os.open(path, flags | AS_IT_IS, mode)
    except ValueError:  # a NUL in a name that a record gave
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path)) from None
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            if stat.S_ISDIR(found.st_mode):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor, found


def open_to_change(path: str | Path, flags: int, mode: int = 0o666) -> int:
    """Open a regular file of a run for writing. One that has other names, too, is not changed: they
    may lie outside of the run."""
    descriptor, found = _open_and_look(path, flags, mode)
    if found.st_nlink > 1:
        os.close(descriptor)
        raise OSError(errno.EMLINK, "it has several names (hard links)", str(path))
    return descriptor


def touch(path: Path) -> None:
    """Make an empty file of a run, unless it is there."""
    os.close(open_file(path, os.O_WRONLY | os.O_CREAT))


def is_file(path: Path) -> bool:
    """Return whether there is a regular file that may be looked at; a link is none."""
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except (OSError, ValueError):
        return False


def measure(path: Path) -> int:
    """Return the bytes of a regular file; 0 where there is none."""
    try:
        found = os.lstat(path)
    except (OSError, ValueError):
        return 0
    return found.st_size if stat.S_ISREG(found.st_mode) else 0


def read(path: str | Path, tail_bytes: int | None = None, most: int = MOST_BYTES) -> bytes:
    """Return a file, or the whole lines at its end; with holes, what is written of it. This takes
    half the system calls of open(): `list` reads thousands of files."""
    file, found = _open_and_look(path, os.O_RDONLY)
    try:
        size = found.st_size
        if size > FROM_BYTES and tail_bytes is None:
            return b"\n".join(_read_written(file, size, most))
        left = size if tail_bytes is None else min(size, tail_bytes)
        cut = left < size
        if cut:
            os.lseek(file, size - left, os.SEEK_SET)
        data = b""
        while left > 0 and (part := os.read(file, left)):
            data, left = data + part, left - len(part)
    finally:
        os.close(file)
    return data.partition(b"\n")[2] if cut else data


def _read_written(file: int, size: int, most: int) -> list[bytes]:
    """Return the written stretches of a large file."""
    stretches = list(find_written(file, 0, size))
    if sum(end - begin for begin, end in stretches) > most:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
    found = []
    for begin, end in stretches:
        data = bytearray()
        while begin < end and (part := os.pread(file, end - begin, begin)):
            data += part
            begin += len(part)
        found.append(bytes(data))
    return found


def find_written(file: int, begin: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the stretches between two places that are no holes, where the file system knows."""
    while begin < end:
        try:
            begin = os.lseek(file, begin, os.SEEK_DATA)
            after = os.lseek(file, begin, os.SEEK_HOLE)
        except OSError as error:
            if error.errno != errno.ENXIO:  # a file system that keeps no account of holes
                yield begin, end
            return
        if begin < end:
            yield begin, min(after, end)
        begin = after


def read_parts(file: int, begin: int, end: int) -> Iterator[bytes]:
    """Yield what is written between two places, part by part."""
    for first, last in find_written(file, begin, end):
        while first < last:
            part = os.pread(file, min(PART_BYTES, last - first), first)
            if not part:
                return
            first += len(part)
            yield part


def read_text(path: Path, most: int = MOST_BYTES) -> str:
    """Return a file as text, whatever its bytes; of a longer one its end. Empty where there is
    none that can be read."""
    try:
        return read(path, most).decode("utf-8", "replace")
    except OSError:
        return ""


def refuse_link(path: Path) -> None:
    """Raise an OSError if a folder that is about to be written into is a link."""
    if path.is_symlink():
        raise OSError(errno.ELOOP, "it is a link to somewhere else", str(path))
