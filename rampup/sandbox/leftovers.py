"""Finds and ends every process of a sandbox: daemons, job steps, their tasks, and waiting clients.

Used by `down`, and by `up` after a crash. A process belongs to a sandbox by what /proc says of it:
the daemons name its directory, tasks carry its SLURM_CONF. A user's own shell or editor that has
SLURM_CONF set is never touched.
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


def processes_of(layout: Layout, node: str | None = None) -> set[int]:
    """The living processes of a sandbox, or of one of its nodes, with all their descendants."""
    recorded = layout.record().get("daemons", {})
    own = {
        named["pid"]
        for daemon, named in recorded.items()
        if node in (None, daemon) and processes.is_alive(named)
    }
    own |= {pid for pid in all_pids() if belongs(pid, layout, node)}
    parents = {pid: parent_of(pid) for pid in all_pids()}
    growing = True
    while growing:
        children = {pid for pid, parent in parents.items() if parent in own} - own
        own |= children
        growing = bool(children)
    own.discard(os.getpid())
    return {pid for pid in own if processes.start_ticks(pid) is not None}


def end_all(layout: Layout) -> None:
    """Kill until a look finds nobody. Without mercy: what they would save is removed next."""
    deadline = time.monotonic() + GONE_WITHIN_S
    while found := processes_of(layout):
        for pid in found:
            end(pid)
        if time.monotonic() > deadline:
            pids = " ".join(str(pid) for pid in sorted(found))
            raise SchedulerError(
                f"processes of sandbox {layout.name} do not end: {pids}", f"kill -9 {pids}"
            )
        time.sleep(0.05)


def end(pid: int) -> None:
    # gone already; or not ours to kill, and then it is named
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def belongs(pid: int, layout: Layout, node: str | None) -> bool:
    name, environment = program_of(pid), environment_of(pid)
    here = environment.get("SLURM_CONF") == str(layout.slurm_conf)
    if here and "SLURMD_NODENAME" in environment:
        return node in (None, environment["SLURMD_NODENAME"])
    if name in DAEMONS:
        if node is not None:
            return names_path(pid, layout.log(node))
        return here or names_path(pid, layout.directory) or names_path(pid, layout.short)
    return here and node is None and name in CLIENTS


def names_path(pid: int, path: Path) -> bool:
    """Whether the command line or an open file of the process is that path, or below it.

    A job step has overwritten its command line and environment with its title; its log is still
    open.
    """
    named = [word.rpartition("=")[2] for word in command_of(pid)] + open_files(pid)
    return any(found == str(path) or found.startswith(f"{path}/") for found in named)


# what /proc says; a process that is gone, or not ours to look at, says nothing --------------------


def all_pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def read(pid: int, name: str) -> str:
    try:
        return Path(f"/proc/{pid}/{name}").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ""


def command_of(pid: int) -> list[str]:
    return read(pid, "cmdline").split("\0")


def environment_of(pid: int) -> dict[str, str]:
    pairs = (entry.partition("=") for entry in read(pid, "environ").split("\0"))
    return {name: value for name, _, value in pairs}


def parent_of(pid: int) -> int:
    fields = read(pid, "stat").rpartition(")")[2].split()
    return int(fields[1]) if fields else 0


def program_of(pid: int) -> str:
    return read(pid, "comm").strip()


def open_files(pid: int) -> list[str]:
    files = []
    with suppress(OSError):
        for entry in os.scandir(f"/proc/{pid}/fd"):
            with suppress(OSError):  # closed while we look
                files.append(os.readlink(entry.path))
    return files
