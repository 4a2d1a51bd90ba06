"""How old something is, where clocks of machines may differ.

A file on shared storage has the time of the machine that wrote it, or of the file server. "Now" for
such a file is what the same file system says, not what this machine's clock says. An age is never
negative: a clock that was ahead makes a thing new, not younger than new.
"""

import contextlib
import os
import time
from pathlib import Path


def age(since: float) -> float:
    """Return the seconds since a moment that somebody wrote down."""
    return max(0.0, time.time() - since)


def age_of_file(path: Path) -> float:
    """Return the seconds since a file was written, by the clock of its file system."""
    return max(0.0, now_in(path.parent) - path.lstat().st_mtime)


def now_in(folder: Path) -> float:
    """Return the time as a file system tells it to who writes there now; in a folder of somebody
    else, where nothing is written, or where we can't write, our own."""
    import tempfile  # slow to import, and only runs of other machines need it

    with contextlib.suppress(OSError):
        if os.stat(folder).st_uid == os.geteuid():
            with tempfile.TemporaryFile(dir=folder) as file:
                os.utime(file.fileno())
                return os.fstat(file.fileno()).st_mtime
    return time.time()
