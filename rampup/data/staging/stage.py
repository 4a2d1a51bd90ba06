"""What copies of files and decoded samples have in common: what was staged, and when to stop it.

Staging is a help. Whatever goes wrong with the node's disk ends staging on that node with one line,
what is staged already stays in use, and the run reads the rest from where it was.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from rampup.data.staging.place import Folder, NotStaged

STOPPED = "stopped"


class Stage:
    """One set of data on the node's own disk, as one rank makes and uses it."""

    def __init__(self, folder: Folder, attempt: int, say: Callable[[str], None]) -> None:
        """What another attempt has left in the folder is checked before it is used."""
        self._folder, self._attempt, self._say = folder, attempt, say
        self._count = threading.Lock()
        self.is_off = False
        self.staged_bytes, self.staged_s = 0, 0.0
        self.hits = self.reads = 0
        """How often something was read, and how often it was on the node's own disk already."""

    def count_staged(self, size: int, seconds: float) -> None:
        with self._count:
            self.staged_bytes += size
            self.staged_s += seconds

    def count_read(self, is_hit: bool) -> None:
        with self._count:
            self.reads += 1
            self.hits += is_hit

    def facts(self) -> dict[str, Any]:
        """Return what this rank has staged."""
        return {
            "staged_bytes": self.staged_bytes,
            "staged_s": round(self.staged_s, 3),
            "reads": self.reads,
            "hits": self.hits,
        }

    def is_stopped_by_another(self) -> bool:
        """Return whether another rank has found that nothing more can be staged, and has said it."""
        if self._folder.read(self._mark) is not None:
            self.is_off = True
        return self.is_off

    @contextmanager
    def stops_when_it_fails(self) -> Iterator[None]:
        """Turn a failure of staging into the end of staging."""
        try:
            yield
        except NotStaged as reason:
            self._stop(str(reason))
        except OSError as error:
            self._stop(f"{error.filename or self._folder.path}: {error.strerror or error}")

    @property
    def _mark(self) -> str:
        return f"{STOPPED}-{self._attempt}"

    def _stop(self, reason: str) -> None:
        """Stage nothing more on this node; one rank says so."""
        if self.is_off:
            return
        self.is_off = True
        is_first = True
        with suppress(OSError):
            is_first = self._folder.claim(self._mark)
        if is_first:
            self._say(f"note: no more is staged, the files themselves are read: {reason}")


def describe_size(size: int) -> str:
    """Return a number of bytes in the unit that suits it."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= scale:
            return f"{size / scale:.3g} {unit}"
    return f"{max(0, size)} bytes"
