"""The processes of a sandbox: find and end its daemons, job steps, tasks, and waiting clients.

Used by `down`, by `up` after a crash, and by the drill. /proc decides whether a process belongs to
a sandbox: daemons name its directory, tasks carry its SLURM_CONF. Never touches a user's own shell
or editor that has SLURM_CONF set.
"""

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

from rampup.core import processes
from rampup.errors import SchedulerError
from rampup.sandbox.layout import Layout
from rampup.sandbox.machine import CLIENTS

DAEMONS = (
    "munged",
    "mariadbd",
    "mariadb-install",
    "slurmdbd",
    "slurmctld",
    "slurmscriptd",
    "slurmd",
    "slurmstepd",
)
"""As the kernel names them: at most 15 letters."""
GONE_WITHIN_S = 15.0


def find_processes(layout: Layout, node: str | None = None) -> set[int]:
    """Find the living processes of a sandbox, or of one of its nodes, with all their children."""
    recorded = layout.record().get("daemons", {})
    own = {
        named["pid"]
        for daemon, named in recorded.items()
        if node in (None, daemon) and processes.is_alive(named)
    }
    own |= {pid for pid in all_pids() if belongs(pid, layout, node)}
    parents = {pid: read_parent(pid) for pid in all_pids()}
    growing = True
    while growing:
        children = {pid for pid, parent in parents.items() if parent in own} - own
        own |= children
        growing = bool(children)
    own.discard(os.getpid())
    return {pid for pid in own if processes.start_ticks(pid) is not None}


def end_all(layout: Layout) -> None:
    """Kill all processes until none is found; no grace, because their files are removed next."""
    deadline = time.monotonic() + GONE_WITHIN_S
    while found := find_processes(layout):
        for pid in found:
            kill(pid)
        if time.monotonic() > deadline:
            pids = " ".join(str(pid) for pid in sorted(found))
            raise SchedulerError(
                f"processes of sandbox {layout.name} do not end: {pids}", f"kill -9 {pids}"
            )
        time.sleep(0.05)


def kill(pid: int) -> None:
    # it ended already; or it is another user's, and then end_all names it
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def belongs(pid: int, layout: Layout, node: str | None) -> bool:
    """Whether a process is one of the sandbox, or of one of its nodes."""
    name, environment = read_program(pid), read_environment(pid)
    here = environment.get("SLURM_CONF") == str(layout.slurm_conf)
    if here and "SLURMD_NODENAME" in environment:
        return node in (None, environment["SLURMD_NODENAME"])
    if name in DAEMONS:
        if node is not None:
            return names_path(pid, layout.log(node))
        return here or names_path(pid, layout.directory) or names_path(pid, layout.short)
    return here and node is None and name in CLIENTS


def names_path(pid: int, path: Path) -> bool:
    """Whether the command line or an open file of a process is that path, or below it.

    A job step has overwritten its command line and environment with its title; its log is still
    open.
    """
    named = [word.rpartition("=")[2] for word in read_command(pid)] + list_open_files(pid)
    return any(found == str(path) or found.startswith(f"{path}/") for found in named)


# reading /proc; the answer is empty for a process that is gone or that belongs to another user -----


def all_pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def read_proc(pid: int, name: str) -> str:
    try:
        return Path(f"/proc/{pid}/{name}").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ""


def read_command(pid: int) -> list[str]:
    return read_proc(pid, "cmdline").split("\0")


def read_environment(pid: int) -> dict[str, str]:
    pairs = (entry.partition("=") for entry in read_proc(pid, "environ").split("\0"))
    return {name: value for name, _, value in pairs}


def read_parent(pid: int) -> int:
    fields = read_proc(pid, "stat").rpartition(")")[2].split()
    return int(fields[1]) if fields else 0


def read_program(pid: int) -> str:
    return read_proc(pid, "comm").strip()


def list_open_files(pid: int) -> list[str]:
    files = []
    with suppress(OSError):
        for entry in os.scandir(f"/proc/{pid}/fd"):
            with suppress(OSError):  # closed while we look
                files.append(os.readlink(entry.path))
    return files
