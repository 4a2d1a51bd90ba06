"""The machine under a sandbox: its user, memory, free ports, and the programs that are installed.

sandbox.py asks it before anything is started; daemons.py takes programs and environment from it.
Never changes anything.
"""

import os
import platform
import pwd
import random
import shutil
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from msgspec import Struct

from rampup.errors import Refused
from rampup.sandbox.layout import Layout, Options

FIRST_PORT, LAST_PORT = 30_000, 32_767
"""Jobs use 12000 to 29999, and the kernel hands out the ports from 32768 on."""
LOOPBACK = "127.0.0.1"
SYSTEM_PROGRAMS = "/usr/local/sbin:/usr/sbin:/sbin"
"""Where the daemons are; these folders are not on the PATH of ordinary users."""
CLIENTS = (
    "sbatch",
    "srun",
    "salloc",
    "squeue",
    "sinfo",
    "scontrol",
    "scancel",
    "sacctmgr",
    "sacct",
)
PACKAGES = {
    "slurm-wlm": ("slurmctld", "slurmd", "slurmstepd", *CLIENTS),
    "munge": ("munged",),
}
ACCOUNTING_PACKAGES = {
    "slurmdbd": ("slurmdbd",),
    "mariadb-server": ("mariadbd", "mariadb-install-db"),
}
FOREIGN_SETTINGS = (
    "SLURM",
    "SBATCH_",
    "SRUN_",
    "SALLOC_",
    "SQUEUE_",
    "SINFO_",
    "SACCT",
    "SCANCEL_",
    "SCONTROL_",
)
DATABASE_SETTINGS = ("MYSQL_", "MARIADB_", "MUNGE_")


class Machine(Struct, frozen=True, kw_only=True):
    """The facts that the configuration needs."""

    user: str
    host: str
    memory_mb: int
    ports: tuple[int, ...]
    """The ports of slurmctld and slurmdbd, then one per node."""
    own_address: str | None = None
    """What the host's name stands for, if no other machine can reach it."""

    @property
    def address(self) -> str:
        return self.own_address or LOOPBACK

    @property
    def controller_port(self) -> int:
        return self.ports[0]

    @property
    def database_port(self) -> int:
        return self.ports[1]

    @property
    def node_ports(self) -> tuple[int, ...]:
        return self.ports[2:]


def describe_machine(ports: tuple[int, ...]) -> Machine:
    memory_mb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
    return Machine(
        user=user_name(),
        host=platform.node().partition(".")[0],
        memory_mb=memory_mb,
        ports=ports,
        own_address=find_own_address(),
    )


def find_own_address() -> str | None:
    """Return the loopback address that the host's name stands for, often 127.0.1.1; None where it
    stands for an address in a network. Slurm's daemons can listen at that address alone."""
    try:
        found = socket.gethostbyname(socket.gethostname())
    except OSError:
        return None
    return found if found.startswith("127.") else None


def user_name() -> str:
    """Look the name up by the user id, as Slurm does; $USER may be wrong."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        hint = f"add a line for uid {os.getuid()} to /etc/passwd: Slurm knows users by their names"
        raise Refused("this user has no name on this machine", hint) from None


def find_program(name: str) -> str | None:
    return shutil.which(name, path=search_path())


def search_path() -> str:
    return ":".join(part for part in (os.environ.get("PATH"), SYSTEM_PROGRAMS) if part)


def check_packages(options: Options) -> None:
    """Refuse when programs are missing, and name the Debian packages that have them."""
    needed = {**PACKAGES, **(ACCOUNTING_PACKAGES if options.accounting else {})}
    packages: list[str] = []
    programs: list[str] = []
    for package, names in needed.items():
        missing = [name for name in names if not find_program(name)]
        programs += missing
        packages += [package] if missing else []
    if packages:
        raise Refused(
            f"a sandbox needs programs that are not here: {', '.join(programs)}",
            f"apt-get install {' '.join(packages)}",
        )


def make_environment(layout: Layout) -> dict[str, str]:
    """Return the environment for daemons and Slurm commands of this sandbox.

    Settings that the user has made for another Slurm are left out.
    """
    foreign = (*FOREIGN_SETTINGS, *DATABASE_SETTINGS)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    return {
        **kept,
        "PATH": search_path(),
        "SLURM_CONF": str(layout.slurm_conf),
        # slurmdbd has no setting for the path of the database's socket; the client library takes it
        # from here
        "MYSQL_UNIX_PORT": str(layout.mariadb_socket),
    }


@contextmanager
def reserve_ports(count: int) -> Iterator[tuple[int, ...]]:
    """Reserve ports for as long as the context lasts.

    They stay bound, without listening: Slurm's daemons bind with SO_REUSEADDR and so may take them,
    another sandbox that looks for free ports at the same time binds without it and may not.
    """
    with ExitStack() as held:
        found: list[int] = []
        everything = range(FIRST_PORT, LAST_PORT + 1)
        candidates = iter(random.sample(everything, len(everything)))
        while len(found) < count:
            port = next(candidates, None)
            if port is None:
                raise Refused(
                    f"no {count} free ports in {FIRST_PORT}-{LAST_PORT}",
                    "rampup sandbox down, for old ones",
                )
            held_socket = held.enter_context(socket.socket())
            try:
                held_socket.bind(("", port))
            except OSError:
                continue
            held_socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            found.append(port)
        yield tuple(found)
