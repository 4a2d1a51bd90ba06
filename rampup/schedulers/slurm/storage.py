"""The part of the catalogue about places: what a job on another machine must see. `preflight` and
`doctor` read it.

A runs directory that the nodes can't see is refused. The interpreter, the package, data and the
working directory may also lie at the same place on every node, so those are only noted.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import rampup
from rampup.core.finding import Finding
from rampup.core.spec import Cluster, RunSpec
from rampup.datasets import fetch
from rampup.errors import Refused
from rampup.schedulers.slurm.mounts import is_shared, type_of


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
    yield from software(spec.cluster, package=spec.kind == "engine")
    if spec.kind != "engine":
        yield from _seen(
            "working directory", Path(spec.cwd), spec.cluster, "start it from shared storage"
        )
    for name in spec.recipe.data if spec.recipe else ():
        try:
            place = fetch.folder(name)
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
