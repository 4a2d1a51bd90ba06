"""Data sets that are made on this machine: generated, or prepared from what the user has.

fetch.py calls `make`. As with sets that are fetched, the set is made beside its place and appears by
one rename. Its files are listed with their sizes, so that a reader can see whether it is whole. How
a set is made says its own module, which DataSet names.
"""

import importlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import cast

from rampup.datasets import fetch
from rampup.datasets.sets import MADE, DataSet, cache_root, check_files
from rampup.errors import RampupError, Refused

Maker = Callable[[Path | None, Path, Path, fetch.Progress], None]
"""Makes a set from what the user has given, in a new folder. The third path is a folder for what is
to stay when it is killed."""


def make(
    data: DataSet, target: Path, given: Path | None, tell: fetch.Tell, progress: fetch.Progress
) -> str:
    """Make the set, unless it is here already; returns where it comes from, or nothing."""
    if target.exists() and given is None:
        try:
            check_files(data.name)
            return ""
        except Refused:
            tell(f"{data.name} is here but damaged: it is replaced")
    module, _, name = data.maker.partition(":")
    maker = cast(Maker, getattr(importlib.import_module(module), name))
    scratch = fetch.make_scratch(target)
    ready = scratch / "ready"
    try:
        ready.mkdir()
        maker(given, ready, cache_root() / f".{data.name}-unfinished", progress)
        list_files(ready)
        if target.exists():
            os.rename(target, scratch / "before")
        os.rename(ready, target)
    except OSError as error:
        raise RampupError(
            f"can't put {data.name} into {target}: {error.strerror}", f"df -h {target.parent}"
        ) from None
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return str(given) if given is not None else "this machine, where it was made"


def list_files(folder: Path) -> None:
    """Write down which files a set has. Links to what is the user's own are not followed."""
    found = {}
    for place, _, names in os.walk(folder):
        for name in sorted(names):
            path = Path(place, name)
            found[str(path.relative_to(folder))] = path.stat().st_size
    (folder / MADE).write_text(json.dumps(found, indent=0) + "\n", encoding="utf-8")
