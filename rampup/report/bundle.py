"""Vega, Vega-Lite and vega-embed as one script, so that a page needs no network. Asked by build.py.

Making it takes vl-convert about two seconds, and it is the same for all reports: it is kept in the
user's cache, and made again when vl-convert is another version or when what is kept is damaged.
"""

import contextlib
import hashlib
import os
from importlib.metadata import version
from pathlib import Path

from rampup.core import paths as places


def script_bundle() -> str:
    file = kept_file()
    with contextlib.suppress(OSError):
        digest, _, kept = file.read_bytes().partition(b"\n")
        if digest.decode("ascii", "replace") == digest_of(kept):
            return kept.decode()
    made = make()
    with contextlib.suppress(OSError):  # no room, or no home: the next report makes it again
        keep(made, file)
    return made


def kept_file() -> Path:
    return places.cache_home() / "rampup" / f"vega-{version('vl-convert-python')}.js"


def make() -> str:
    import vl_convert

    # its types want a snippet; without one it is altair's own bundle
    return vl_convert.javascript_bundle().replace("</script", "<\\/script")  # type: ignore[call-arg]


def keep(script: str, file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    beside = file.with_name(f".{file.name}.{os.getpid()}")
    content = script.encode()
    beside.write_bytes(digest_of(content).encode() + b"\n" + content)
    os.replace(beside, file)


def digest_of(script: bytes) -> str:
    return hashlib.sha256(script).hexdigest()
