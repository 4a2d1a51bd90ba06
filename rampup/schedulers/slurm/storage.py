"""The part of the catalogue about places: what a job on another machine must see. `preflight` and
`doctor` read it.

A runs directory that the nodes can't see is refused. The interpreter, the package, data and the
working directory may also lie at the same place on every node, so those are only noted.
"""

import os
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import rampup
from rampup.core.finding import Finding
from rampup.core.spec import Cluster, RunSpec
from rampup.datasets import sets
from rampup.errors import Refused

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


def runs(root: Path, cluster: Cluster) -> Iterator[Finding]:
    about = f"runs directory {root}"
    if is_shared(root, cluster.shared):
        yield Finding("runs-shared", "ok", f"{about}: shared with the nodes")
        return
    cause = f"runs would go to {root} on {_kind(root)}, which other machines do not see"
    remedy = (
        "set RAMPUP_RUNS to a directory that every node sees; or, if they do see it, say so in the profile: "
        f'shared = ["{root}"]'
    )
    yield Finding("runs-shared", "problem", about, cause, remedy)


def needed(spec: RunSpec) -> Iterator[Finding]:
    """What the job uses besides its run directory."""
    yield from software(spec.cluster, package=spec.needs_rampup)
    if spec.kind != "engine":
        yield from _seen(
            "working directory", Path(spec.cwd), spec.cluster, "start it from shared storage"
        )
    for name in spec.recipe.data if spec.recipe else ():
        try:
            place = sets.folder(name)
        except Refused:  # absent: another check tells
            continue
        yield from _seen(
            f"data set {name}",
            place,
            spec.cluster,
            "XDG_CACHE_HOME on shared storage, and fetch again",
        )


def software(cluster: Cluster, package: bool) -> Iterator[Finding]:
    places = {"Python": Path(sys.prefix)}
    if package:
        places["rampup"] = Path(rampup.__file__).parent
    for name, place in places.items():
        yield from _seen(name, place, cluster, "make the environment on shared storage")


def _seen(name: str, place: Path, cluster: Cluster, remedy: str) -> Iterator[Finding]:
    topic, about = f"shared-{name.partition(' ')[0].lower()}", f"{name} in {place}"
    if is_shared(place, cluster.shared):
        yield Finding(topic, "ok", f"{about}: shared with the nodes")
    else:
        cause = (
            f"{about} is on {_kind(place)}: a node that does not have it there can't run the job"
        )
        yield Finding(topic, "note", about, cause, remedy)


def _kind(place: Path) -> str:
    kind = type_of(place)
    return f"a file system of type {kind}" if kind else "a file system of unknown type"


# which file system a path is on -------------------------------------------------------------------


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
