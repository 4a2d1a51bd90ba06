"""Cluster profiles: one TOML file per site, `local` included. Data, not code.

Ours lie beside this file; a user's own in $XDG_CONFIG_HOME/rampup/clusters, where the sandbox writes its profile too.
A user's profile wins over one of ours with the same name.
"""

from pathlib import Path

import msgspec

from rampup import places
from rampup.errors import Refused, nearest
from rampup.recipes.load import read_toml
from rampup.spec import Cluster

HERE = Path(__file__).parent


def user_folder() -> Path:
    return places.config() / "rampup" / "clusters"


def files() -> dict[str, Path]:
    """The profile of every known cluster."""
    return {path.stem: path for folder in (HERE, user_folder()) for path in sorted(folder.glob("*.toml"))}


def names() -> list[str]:
    return sorted(files())


def load(name: str) -> Cluster:
    file = files().get(name)
    if file is None:
        hint = "rampup sandbox up makes it" if name == "sandbox" else nearest(name, names())
        raise Refused(f"unknown cluster {name!r}", hint)
    table = read_toml(file)
    for key in table:
        if key not in Cluster.__struct_fields__ or key == "name":
            raise Refused(f"unknown key {key!r} in {file}", nearest(key, Cluster.__struct_fields__))
    try:
        return msgspec.convert({"name": name, **table}, Cluster)
    except msgspec.ValidationError as error:
        raise Refused(f"{file}: {error}", "docs/clusters.md lists the keys of a profile") from None
