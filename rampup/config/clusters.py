"""Cluster profiles: one TOML file per site, `local` included. Data, not code. Where they are, and
which one is meant.

Ours lie in rampup/clusters; then come /etc/rampup/clusters for a whole site,
$XDG_CONFIG_HOME/rampup/clusters for a user (where the sandbox writes its profile too), and
.rampup/clusters in the project. Of two with one name the later wins. Nothing is written here.
"""

import contextlib
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from rampup.config.setting_tables import read_toml
from rampup.core import paths as places
from rampup.core.resources import list_directives
from rampup.core.spec import Cluster, rename_old_keys
from rampup.errors import Refused, nearest
from rampup.rundir.trust import is_guarded

HERE = Path(__file__).parents[1] / "clusters"
SITE_WIDE = Path("/etc/rampup/clusters")
IN_A_PROJECT = Path(".rampup") / "clusters"
LOCAL = "local"
"""The profile of this machine."""
AUTO = "auto"
"""In place of a name: the profile that fits this machine."""
MAY_NEED = ("time", *list_directives())
"""Resources that a profile can ask every run for."""


class NotKnownHere(Refused):
    """A run names a cluster of which this user has no profile, and what it says of it counts for
    nothing: somebody else wrote that."""


class Profile(NamedTuple):
    """A cluster, with where it was read."""

    cluster: Cluster
    file: Path
    said: frozenset[str]
    """The keys that the file has; all others have their defaults."""

    def origin(self, key: str) -> str:
        return name_file(self.file) if key in self.said else "default"


def user_folder() -> Path:
    return places.config_home() / "rampup" / "clusters"


def folders() -> list[Path]:
    """Where profiles are, the most general first."""
    project = project_folder(Path.cwd())
    return [HERE, SITE_WIDE, user_folder(), *([project] if project else [])]


def project_folder(start: Path) -> Path | None:
    """In the directory, or above it in the same working tree of git: never further, there lies what
    others wrote."""
    above = [start, *start.parents]
    tops = [index for index, place in enumerate(above) if (place / ".git").exists()]
    inside = above[: tops[0] + 1] if tops else above[:1]
    return next((place / IN_A_PROJECT for place in inside if (place / IN_A_PROJECT).is_dir()), None)


def files() -> dict[str, Path]:
    """The profile of every known cluster."""
    return list_files(folders())


def own_files() -> dict[str, Path]:
    """The profiles that nobody but this user and the site's administrators can have written. A
    project's folder may be somebody else's, and then it counts only for who names it (--on)."""
    project = project_folder(Path.cwd())
    mine = [project] if project is not None and is_guarded(project) else []
    found = list_files([HERE, SITE_WIDE, user_folder(), *mine])
    return {
        name: path for name, path in found.items() if path.parent not in mine or is_guarded(path)
    }


def list_files(places: Sequence[Path]) -> dict[str, Path]:
    return {
        path.stem: path
        for folder in places
        for path in sorted(folder.glob("*.toml"))
        if path.stem != AUTO
    }


def names() -> list[str]:
    return sorted(files())


def load(name: str) -> Cluster:
    return find(name).cluster


def find(name: str) -> Profile:
    """The profile of that name, or with `auto` the one that fits this machine."""
    if name == AUTO:
        return for_this_machine()
    file = files().get(name)
    if file is None:
        hint = "start it with: rampup sandbox up" if name == "sandbox" else nearest(name, names())
        raise Refused(f"unknown cluster {name!r}", hint)
    return read(file)


def of_run(name: str, kept: Mapping[str, Any], is_obeyed: bool) -> Cluster:
    """The cluster of a run: as the user's own profile is today. `kept` is what the run says of it;
    that is only compared with the profile, because a slurm.conf names plug-ins, and Slurm's
    programs run them. Where there is no such profile, it counts if the run `is_obeyed`, and its
    slurm.conf lies where nobody else can write."""
    conf = kept.get("slurm_conf")
    # a sandbox that was taken down
    gone = kept.get("name") != name or (conf and not os.path.exists(str(conf)))
    file = own_files().get(name)
    try:
        today = read(file).cluster if file is not None else None
    except Refused:
        if gone:
            raise
        today = None
    slurm = (conf, kept.get("slurm_cluster"))
    if today is not None and (gone or (today.slurm_conf, today.slurm_cluster) == slurm):
        return today
    if not is_obeyed or (conf and not gone and not is_guarded(Path(str(conf)))):
        raise NotKnownHere(f"cluster {name} is not known here", "rampup cluster list")
    if gone and file is None:
        raise Refused(f"unknown cluster {name!r}", nearest(name, names()))
    try:
        return msgspec.convert(rename_old_keys(kept), Cluster)
    except msgspec.ValidationError:  # written by another version
        raise Refused(f"unknown cluster {name!r}", "rampup cluster list") from None


def read(file: Path) -> Profile:
    table = rename_old_keys(read_toml(file))
    known = [key for key in Cluster.__struct_fields__ if key != "name"]
    for key in table:
        if key not in known:
            raise Refused(f"unknown key {key!r} in {file}", nearest(key, known))
    try:
        cluster = msgspec.convert({"name": file.stem, **table}, Cluster)
    except msgspec.ValidationError as error:
        raise Refused(
            f"{file}: {error}", "`rampup cluster show slurm` lists the keys of a profile"
        ) from None
    for key in cluster.needs:
        if key not in MAY_NEED:
            raise Refused(
                f"{file}: needs = {key!r} is not an option of a run",
                nearest(key, MAY_NEED),
            )
    return Profile(cluster, file, frozenset(table))


def name_file(file: Path) -> str:
    """A profile's file as people read it: one of ours by its name alone."""
    return file.name if file.parent == HERE else str(file)


# which machine is this ----------------------------------------------------------------------------


def for_this_machine() -> Profile:
    found = find_fitting()
    if len(found) == 1:
        return found[0]
    host = socket.gethostname()
    if not found:
        hint = "--on NAME (rampup cluster list), or rampup cluster probe --save NAME describes this cluster"
        raise Refused(f"no profile matches this machine: {host} is in no profile's hostnames", hint)
    listed = ", ".join(profile.cluster.name for profile in found)
    raise Refused(
        f"several profiles match this machine, {host}: {listed}", f"--on {found[0].cluster.name}"
    )


def find_fitting() -> list[Profile]:
    """The profiles whose hostnames fit this machine: of the most special folder that has one."""
    found = [profile for profile in readable() if fits(profile.cluster)]
    order = folders()
    latest = max((order.index(profile.file.parent) for profile in found), default=0)
    return [profile for profile in found if profile.file.parent == order[latest]]


def readable() -> Iterator[Profile]:
    """One that is damaged, or of a newer rampup, must not stop who never asked for it."""
    for file in files().values():
        with contextlib.suppress(Refused):
            yield read(file)


def fits(cluster: Cluster) -> bool:
    return any(
        fnmatchcase(host, pattern.lower())
        for pattern in cluster.hostnames
        for host in own_names(pattern)
    )


def own_names(pattern: str) -> Iterator[str]:
    """What this machine is called. The full name may cost a question to a name server: only for who
    wants a dot."""
    host = socket.gethostname().lower()
    yield host
    if "." in pattern and "." not in host:
        yield socket.getfqdn().lower()
