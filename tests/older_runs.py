"""Runs that an older version of rampup has made: how a test gets them.

`tests/compat/make_fixtures.py` lets a version make run directories and keeps them in one archive.
Whatever belongs to the machine where that was done is a word between two @ in there, which `unpack`
replaces by what is true here. So a run looks as if the older version had made it in this place, and
was updated after that.
"""

import importlib.util
import json
import os
import sys
import tarfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

ARCHIVE = Path(__file__).parent / "compat" / "runs-0.1.0.tar.gz"
CONTENTS = "contents.json"
BINARY = (".pt", ".npz")
"""Files that hold no path of a machine, and are kept as they are; so are those of TensorBoard."""
LONG_AGO_S = 600.0
"""After two minutes a run of another machine that writes nothing is taken for dead."""

ASKED = ("show", "why", "logs")
"""What every version is asked about every run; the archive has the answers of the older one."""


class Older(NamedTuple):
    """The runs of an older version, unpacked."""

    runs: dict[str, Path]
    """The directory of each run, by what is special about it."""
    commands: dict[str, list[str]]
    """Command lines of processes of that version, which may have outlived an update."""
    said: dict[str, dict[str, Any]]
    """What that version said of each run, by verb: the exit code and the JSON value."""


def is_text(name: str) -> bool:
    return not name.endswith(BINARY) and "tfevents" not in name


def package_here() -> Path:
    """Where the package is that the tests are about."""
    found = importlib.util.find_spec("rampup")
    assert found is not None and found.origin is not None
    return Path(found.origin).parent


def true_here(
    root: Path,
    python: str = sys.executable,
    package: Path | None = None,
) -> dict[str, str]:
    """What stands for each word between two @, the longest paths first."""
    return {
        "@SLURM_CONF@": str(root / "oldsite" / "slurm.conf"),
        "@CLUSTER@": "oldsite",
        "@ROOT@": str(root),
        "@PACKAGE@": str(package or package_here()),
        "@PYTHON@": python,
        "@BIN@": str(Path(python).parent),
    }


def filled(text: str, values: Mapping[str, str]) -> str:
    for word, value in values.items():
        text = text.replace(word, value)
    return text


def unpack(
    values: Mapping[str, str],
    *kinds: str,
    silent_s: float = LONG_AGO_S,
    archive: Path = ARCHIVE,
) -> Older:
    """Put the runs of these kinds, or all, and the user's code where they were, below `@ROOT@`.

    The newest file of each is `silent_s` seconds old: with 0 a run seems to write just now.
    """
    root = Path(values["@ROOT@"])
    with tarfile.open(archive) as tar:
        files = {member.name: (member, tar.extractfile(member)) for member in tar.getmembers()}
        contents = json.loads(filled(content_of(files[CONTENTS][1]).decode(), values))
        wanted = {kind: contents["runs"][kind] for kind in kinds or contents["runs"]}
        for place in ("work/", *(f"runs/{name}/" for name in wanted.values())):
            mine = [member for member, _ in files.values() if member.name.startswith(place)]
            later = time.time() - silent_s - max(it.mtime for it in mine if it.isfile())
            for member in mine:
                put(root / member.name, member, files[member.name][1], values)
                if member.isfile():
                    os.utime(root / member.name, (member.mtime + later,) * 2)
    runs = {kind: root / "runs" / name for kind, name in wanted.items()}
    return Older(runs, contents["commands"], contents["said"])


def put(path: Path, member: tarfile.TarInfo, file: Any, values: Mapping[str, str]) -> None:
    if member.isdir():
        path.mkdir(parents=True, exist_ok=True)
        return
    data = content_of(file)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(filled(data.decode(), values).encode() if is_text(path.name) else data)
    path.chmod(member.mode)


def content_of(file: Any) -> bytes:
    assert file is not None
    return bytes(file.read())


def answers(call: Callable[..., Any], run: Path) -> dict[str, Any]:
    """What a version says of a run; `call` is its command line, and returns as subprocess.run."""
    found = {}
    for verb in ASKED:
        done = call(verb, str(run), "--json")
        said = json.loads(done.stdout) if done.stdout else None
        found[verb] = {"code": done.returncode, "said": said}
    return found


def at_least(old: Any, new: Any, where: str = "") -> list[str]:
    """What the older version said and the newer one does not; the newer one may say more."""
    if isinstance(old, dict) and isinstance(new, dict):
        pairs = {f"{where}.{key}": (value, new.get(key, "nothing")) for key, value in old.items()}
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        both = enumerate(zip(old, new, strict=True))
        pairs = {f"{where}[{number}]": pair for number, pair in both}
    else:
        return [] if old == new else [f"{where} was {old!r} and is {new!r}"]
    return [words for place, pair in pairs.items() for words in at_least(*pair, place)]
