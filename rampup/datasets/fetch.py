"""How a data set gets into the user's cache; `rampup fetch` calls `fetch`.

A set is made beside its place and appears by one rename, so a reader finds all of it or nothing; a
fetch that is killed half-way or runs twice at once does no harm. Compute nodes have no internet: a
job never fetches. Where a set lies, and whether it is whole, says sets.py.
"""

import errno
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rampup.datasets.sets import DataSet, cache_root, named
from rampup.errors import RampupError, Refused

if TYPE_CHECKING:
    from rampup.datasets.sources import Source

ABANDONED_AFTER_S = 24 * 3600.0
"""A later fetch removes what a killed one left behind, but only after so long: another fetch may
still be at work."""

Tell = Callable[[str], None]
"""Takes a line for people."""
Progress = Callable[[int, int], None]
"""Takes the bytes written and the bytes of the whole set."""


class Fetched(NamedTuple):
    folder: Path
    source: str
    """Empty when the set was here already."""


def fetch(name: str, given: Path | None, tell: Tell, progress: Progress) -> Fetched:
    """Bring the set to this machine, unless it is here already; a damaged one is replaced."""
    import shutil  # with the sources below slow to import, and `check` is called before every run

    data = named(name)
    target = cache_root() / data.name
    if data.maker:
        from rampup.datasets.making import make

        return Fetched(target, make(data, target, given, tell, progress))
    if _is_verified(data, target):
        return Fetched(target, "")
    if target.exists():
        tell(f"{name} is here but damaged: it will be replaced")
    scratch = make_scratch(target)
    try:
        source = _fill_from_first(data, given, scratch / "ready", tell, progress)
        _install(data, scratch, target)
    except OSError as error:
        raise RampupError(
            f"can't put {name} into {target}: {error.strerror}", f"ls -la {target.parent}"
        ) from None
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return Fetched(target, source)


def _is_verified(data: DataSet, place: Path) -> bool:
    import hashlib

    for file in data.files:
        try:
            with open(place / file.name, "rb") as stream:
                found = hashlib.file_digest(stream, file.digest).hexdigest()
        except OSError:
            return False
        if found != file.checksum:
            return False
    return True


def make_scratch(target: Path) -> Path:
    """A hidden directory beside the target: the same file system, so that a rename is enough at the
    end."""
    import tempfile

    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(target)
        return Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    except OSError as error:
        hint = "set XDG_CACHE_HOME to a directory that you can write"
        raise Refused(
            f"can't write the cache directory {target.parent}: {error.strerror}", hint
        ) from None


def _remove_abandoned(target: Path) -> None:
    import shutil

    for scratch in target.parent.glob(f".{target.name}.*"):
        with suppress(FileNotFoundError):
            if time.time() - scratch.stat().st_mtime > ABANDONED_AFTER_S:
                shutil.rmtree(scratch, ignore_errors=True)


def _fill_from_first(
    data: DataSet, given: Path | None, ready: Path, tell: Tell, progress: Progress
) -> str:
    """Fill `ready` from the first source that works, and return its name."""
    import shutil

    from rampup.datasets.sources import SourceError, list_sources

    for source in list_sources(data, given):
        shutil.rmtree(ready, ignore_errors=True)
        ready.mkdir()
        try:
            _fill(data, source, ready, progress)
            return source.label
        except SourceError as error:
            tell(f"{source.label}: {error}")
    files = ", ".join(file.name for file in data.files)
    wanted = f"PATH: {data.given}" if data.given else f"DIR, which holds {files}"
    raise RampupError(
        f"no source of {data.name} worked", f"rampup fetch {data.name} --from {wanted}"
    )


def _fill(data: DataSet, source: "Source", ready: Path, progress: Progress) -> None:
    from rampup.datasets.sources import fill_from

    written = 0

    def tick(more: int) -> None:
        nonlocal written
        written += more
        # what is read may be a little more than what is kept
        progress(min(written, data.size), data.size)

    fill_from(source, ready, tick)


def _install(data: DataSet, scratch: Path, target: Path) -> None:
    """Move the set into its place. What is there is moved away, unless it is whole: then another
    fetch was quicker."""
    turn = 0
    while True:
        try:
            os.rename(scratch / "ready", target)
            return
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise
        if _is_verified(data, target):
            return
        turn += 1
        with suppress(FileNotFoundError):
            os.rename(target, scratch / f"damaged-{turn}")
