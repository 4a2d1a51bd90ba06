"""The layout of a sandbox: its options, its paths, and its record on disk.

Used by all parts of the sandbox. Everything is in one directory; the folders that hold unix sockets
move to a short one under /tmp when the path would be too long for a socket. Never starts or stops
anything.
"""

import os
import re
import tempfile
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from rampup.config import clusters
from rampup.core import paths, processes
from rampup.errors import Refused
from rampup.rundir.records import read_json, write_json

DEFAULT_NAME = "sandbox"
NAME = re.compile(r"[a-z][a-z0-9_-]{0,30}")
PLAIN_PATH = re.compile(r"[A-Za-z0-9_./+@~-]+")
"""The characters that slurm.conf accepts without quotes."""
SOCKET_PATH_BYTES = 107
LONGEST_SOCKET = len("/spool/node64/stepd.slurm.pmix.1234567.12345")


class Options(Struct, frozen=True, kw_only=True):
    """The options of `rampup sandbox up`."""

    nodes: int = 4
    cpus_per_node: int = 8
    gpus_per_node: int = 0
    max_array_size: int = 1001
    accounting: bool = True
    grace_time_s: int = 0
    requeue: bool = True
    node_timeout_s: int = 30
    further: str = ""
    """Lines to add at the end of slurm.conf."""


class Layout(Struct, frozen=True):
    """The paths of one sandbox. Making the object touches nothing."""

    name: str
    directory: Path
    short: Path
    """Where the unix sockets are: the directory itself, or one under /tmp."""
    profile: Path
    """The cluster profile that `rampup run --on NAME` reads."""

    @property
    def record_file(self) -> Path:
        return self.directory / "sandbox.json"

    @property
    def slurm_conf(self) -> Path:
        return self.directory / "slurm.conf"

    @property
    def gres_conf(self) -> Path:
        return self.directory / "gres.conf"

    @property
    def slurmdbd_conf(self) -> Path:
        """The configuration of slurmdbd; Slurm looks for it beside slurm.conf."""
        return self.directory / "slurmdbd.conf"

    @property
    def mariadb_conf(self) -> Path:
        return self.directory / "mariadb.cnf"

    @property
    def munge_key(self) -> Path:
        return self.directory / "munge.key"

    @property
    def database(self) -> Path:
        return self.directory / "mariadb"

    @property
    def database_tmp(self) -> Path:
        return self.directory / "mariadb-tmp"

    @property
    def saved_state(self) -> Path:
        """The folder in which slurmctld saves its state."""
        return self.directory / "state"

    @property
    def gpus(self) -> Path:
        return self.directory / "gpu"

    @property
    def logs(self) -> Path:
        return self.directory / "log"

    @property
    def run(self) -> Path:
        return self.short / "run"

    @property
    def munge_socket(self) -> Path:
        return self.run / "munge"

    @property
    def mariadb_socket(self) -> Path:
        return self.run / "mariadb"

    @property
    def spool(self) -> Path:
        return self.short / "spool"

    @property
    def tmp(self) -> Path:
        return self.short / "tmp"

    def log(self, daemon: str) -> Path:
        return self.logs / f"{daemon}.log"

    def record(self) -> dict[str, Any]:
        return read_json(self.record_file)

    def write_record(self, record: dict[str, Any]) -> None:
        write_json(self.record_file, record)


def sandboxes_folder() -> Path:
    """Return the folder that holds all sandboxes of this user."""
    return paths.state_home().absolute() / "rampup" / "sandbox"


def list_sandboxes() -> list[str]:
    """List the names of the sandboxes that exist, up or not."""
    return sorted(path.parent.name for path in sandboxes_folder().glob("*/sandbox.json"))


def find_layout(name: str) -> Layout:
    """Return the layout of the sandbox of that name, which need not exist."""
    if not NAME.fullmatch(name):
        raise Refused(
            f"{name!r} can't be the name of a sandbox",
            "small letters, digits, - and _, at most 31 of them",
        )
    directory = sandboxes_folder() / name
    recorded = read_json(directory / "sandbox.json").get("short")
    short = Path(recorded) if recorded else directory
    return Layout(name, directory, short, clusters.user_folder() / f"{name}.toml")


def refuse_unusable(layout: Layout) -> None:
    """Refuse a path that Slurm can't use, and a name that another cluster profile has."""
    if not PLAIN_PATH.fullmatch(str(layout.directory)):
        hint = "set XDG_STATE_HOME to a path of letters, digits and _./+@~-"
        raise Refused(f"Slurm can't be configured in {str(layout.directory)!r}", hint)
    built_in = (clusters.HERE / layout.profile.name).exists()
    if built_in or (layout.profile.exists() and not owns_profile(layout)):
        hint = f"choose another name: rampup sandbox up --name {DEFAULT_NAME}2"
        raise Refused(
            f"there is a cluster profile {layout.name!r} already that is not a sandbox", hint
        )


def owns_profile(layout: Layout) -> bool:
    """Whether the profile of that name is the sandbox's, and not the user's own for a real site."""
    try:
        text = layout.profile.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return f'slurm_conf = "{layout.slurm_conf}"' in text


def make_folders(layout: Layout, options: Options) -> Layout:
    """Make the empty folders, and a record of what a later `up` or `down` must remove."""
    layout.directory.mkdir(parents=True, mode=0o700)
    if len(os.fsencode(layout.directory)) + LONGEST_SOCKET > SOCKET_PATH_BYTES:
        short = Path(tempfile.mkdtemp(prefix="rampup-", dir="/tmp"))
        layout = msgspec.structs.replace(layout, short=short)
    layout.write_record(
        {
            "name": layout.name,
            "host": processes.host(),
            "short": str(layout.short),
            "options": msgspec.to_builtins(options),
            "daemons": {},
            "ready": False,
        }
    )
    databases = (layout.database, layout.database_tmp)
    for folder in (*databases, layout.saved_state, layout.gpus, layout.logs, layout.run):
        folder.mkdir(mode=0o700)
    for node in node_names(options):
        (layout.spool / node).mkdir(parents=True, mode=0o700)
        (layout.tmp / node).mkdir(parents=True, mode=0o700)
    return layout


def node_names(options: Options) -> list[str]:
    """Return the names of the nodes: node1, node2, ..."""
    return [f"node{number}" for number in range(1, options.nodes + 1)]
