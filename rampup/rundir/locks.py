"""A lock that saves work: of two people who start the same thing, the second is refused at once.

Nothing hangs on it. A start is claimed by a file that only one process can make (claims.py),
an attempt by mkdir, and a point of a study by a link (study/members.py). So a lock may fail, or be
seen by one machine alone. The file stays for ever; what it says is who has the lock.
"""

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from rampup.core import processes
from rampup.errors import Refused
from rampup.rundir import clocks, opening, records
from rampup.rundir.records import Record

ABSENT_S = 600.0
"""A process of another machine counts as alive for so long after it took the lock."""
TAKEN = (errno.EWOULDBLOCK, errno.EACCES)


@contextlib.contextmanager
def hold(path: Path, busy: str) -> Iterator[None]:
    """Have the lock of this file, or be refused with the words of `busy`."""
    try:
        descriptor = opening.open_to_change(path, os.O_RDWR | os.O_CREAT)
    except OSError as error:
        raise records.refuse_write(path, error) from None
    try:
        refuse_if_taken(descriptor, path, busy)
        write_mark(descriptor, processes.identify(os.getpid()))
        try:
            yield
        finally:
            write_mark(descriptor, {})
    finally:
        os.close(descriptor)


def refuse_if_taken(descriptor: int, path: Path, busy: str) -> None:
    """Refuse if another process has the lock: by the kernel's word, and where the kernel can't
    know, by the mark."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in TAKEN:
            raise Refused(busy, "wait until it is done") from None
        # a file system without locks: the mark decides
    mark = records.read_json(path)
    is_other = mark.get("pid") != os.getpid() or mark.get("host") != processes.host()
    if is_other and is_alive(mark, path):
        raise Refused(busy, f"if that process is gone: rm {path}")


def is_alive(mark: Record, path: Path) -> bool:
    """Return whether the process of a mark may have the lock: it lives here, or took the lock on
    another machine a short while ago."""
    if mark.get("host") in (None, processes.host()):
        return processes.is_alive(mark)
    return clocks.age_of_file(path) < ABSENT_S


def write_mark(descriptor: int, mark: Record) -> None:
    """Say who has the lock; a full disk does not matter."""
    with contextlib.suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, msgspec.json.encode(mark) if mark else b"", 0)
