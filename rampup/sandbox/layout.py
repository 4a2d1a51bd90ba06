"""Where a sandbox lives and what it was asked to be: options, paths, the record on disk.

Used by all parts of the sandbox. Everything is in one directory; what holds unix sockets moves to a
short one under /tmp when the path would be too long for them. Never starts or stops anything.
"""

import os
import re
import tempfile
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from rampup.config import clusters as load
from rampup.core import processes
from rampup.errors import Refused
from rampup.rundir.records import read_json, write_json

DEFAULT_NAME = "sandbox"
NAME = re.compile(r"[a-z][a-z0-9_-]{0,30}")
PLAIN_PATH = re.compile(r"[A-Za-z0-9_./+@~-]+")
"""What slurm.conf takes without quoting."""
SOCKET_PATH_BYTES = 107
LONGEST_SOCKET = len("/spool/node64/stepd.slurm.pmix.1234567.12345")


class Options(Struct, frozen=True, kw_only=True):
    """What `rampup sandbox up` can be asked for."""

    nodes: int = 4
    cpus_per_node: int = 8
    gpus_per_node: int = 0
    max_array_size: int = 1001
    accounting: bool = True
    grace_time_s: int = 0
    requeue: bool = True
    node_timeout_s: int = 30
    further: str = ""
    """Lines for slurm.conf, after all others."""


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
        """Slurm looks for it beside slurm.conf."""
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
        """What slurmctld remembers."""
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


def sandboxes() -> Path:
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state).absolute() / "rampup" / "sandbox"


def known() -> list[str]:
    """The names of the sandboxes that exist, up or not."""
    return sorted(path.parent.name for path in sandboxes().glob("*/sandbox.json"))


def find(name: str) -> Layout:
    """The sandbox of that name, where it is or would be."""
    if not NAME.fullmatch(name):
        raise Refused(
            f"{name!r} can't be the name of a sandbox",
            "small letters, digits, - and _, at most 31 of them",
        )
    directory = sandboxes() / name
    short = read_json(directory / "sandbox.json").get("short")
    return Layout(
        name, directory, Path(short) if short else directory, load.user_folder() / f"{name}.toml"
    )


def check(layout: Layout) -> None:
    """Refuse what could not work, before anything is made."""
    if not PLAIN_PATH.fullmatch(str(layout.directory)):
        hint = "set XDG_STATE_HOME to a path of letters, digits and _./+@~-"
        raise Refused(f"Slurm can't be configured in {str(layout.directory)!r}", hint)
    built_in = (load.HERE / layout.profile.name).exists()
    if built_in or (layout.profile.exists() and not profile_is_ours(layout)):
        hint = f"choose another name: rampup sandbox up --name {DEFAULT_NAME}2"
        raise Refused(
            f"there is a cluster profile {layout.name!r} already that is not a sandbox", hint
        )


def profile_is_ours(layout: Layout) -> bool:
    """A profile of that name may be the user's own, for a real site."""
    try:
        return f'slurm_conf = "{layout.slurm_conf}"' in layout.profile.read_text(
            encoding="utf-8", errors="replace"
        )
    except OSError:
        return False


def make(layout: Layout, options: Options) -> Layout:
    """The empty directories, and a record that says what a later `up` or `down` must remove."""
    layout.directory.mkdir(parents=True, mode=0o700)
    if len(os.fsencode(layout.directory)) + LONGEST_SOCKET > SOCKET_PATH_BYTES:
        layout = msgspec.structs.replace(
            layout, short=Path(tempfile.mkdtemp(prefix="rampup-", dir="/tmp"))
        )
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
    for folder in (
        layout.database,
        layout.database_tmp,
        layout.saved_state,
        layout.gpus,
        layout.logs,
        layout.run,
    ):
        folder.mkdir(mode=0o700)
    for node in node_names(options):
        (layout.spool / node).mkdir(parents=True, mode=0o700)
        (layout.tmp / node).mkdir(parents=True, mode=0o700)
    return layout


def node_names(options: Options) -> list[str]:
    return [f"node{number}" for number in range(1, options.nodes + 1)]
