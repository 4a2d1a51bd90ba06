"""Whether all nodes of a cluster see a directory: by the type of its file system, or because the
profile says so.

Linux tells in /proc/self/mountinfo. Only looks; slurm.py judges.
"""

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

MOUNTS = Path("/proc/self/mountinfo")
SHARED = frozenset(
    (
        *(
            "nfs",
            "nfs4",
            "lustre",
            "gpfs",
            "beegfs",
            "fhgfs",
            "ceph",
            "afs",
            "cifs",
            "smb3",
            "orangefs",
            "pvfs2",
        ),
        *("wekafs", "panfs", "glusterfs", "gfs2", "ocfs2", "dvs", "quobyte", "daos"),
    )
)
OWN_FUSE = (
    "fuse.fuse-overlayfs",
    "fuse.squashfuse",
    "fuse.squashfuse_ll",
    "fuse.gvfsd-fuse",
    "fuse.lxcfs",
)
"""Of the file systems in user space these never reach another machine; most others do."""


class Mount(NamedTuple):
    point: Path
    type: str


def is_shared(path: Path, listed: Iterable[str]) -> bool:
    """Whether `path` is on a file system that many machines see, or below a directory that the
    profile lists."""
    real = path.resolve()
    if any(real.is_relative_to(Path(place).expanduser().resolve()) for place in listed):
        return True
    kind = type_of(path)
    return kind in SHARED or (kind.startswith("fuse.") and kind not in OWN_FUSE)


def type_of(path: Path) -> str:
    """The type of the file system where `path` is or would be made; empty where the system does not
    tell."""
    real = path.resolve()
    os.path.exists(real)  # an automounter mounts what is looked at
    found = Mount(Path("/"), "")
    for mount in mounts():
        # a later mount at the same place covers the earlier one
        if real.is_relative_to(mount.point) and len(mount.point.parts) >= len(found.point.parts):
            found = mount
    return found.type


def mounts() -> Iterator[Mount]:
    try:
        lines = MOUNTS.read_text(errors="surrogateescape").splitlines()
    except OSError:
        return
    for line in lines:
        place, _, rest = line.partition(" - ")
        yield Mount(Path(unescaped(place.split(" ")[4])), rest.split(" ")[0])


def unescaped(text: str) -> str:
    r"""A space in a path is written \040."""
    return re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), text)
