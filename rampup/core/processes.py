"""Which process is meant, and whether it is still alive.

A pid alone is not enough: pids are reused, and they repeat on other hosts and after a reboot. So a
process is identified by host, boot, pid and start time. Launchers write this down; every reader of
a run's state asks `is_alive`. Nothing here sends a signal that does anything.
"""

import os
import platform
import signal
from pathlib import Path
from typing import Any


def host() -> str:
    return os.environ.get("SLURMD_NODENAME") or platform.node()


def boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def start_ticks(pid: int) -> int | None:
    """Return the clock ticks from boot to the start of the process; None when it is gone. A zombie
    counts as gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None if Path("/proc/self/stat").exists() else _start_without_proc(pid)
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[19])


def _start_without_proc(pid: int) -> int | None:
    try:
        os.kill(pid, 0)
    except OSError:
        return None
    return 0


def identify(pid: int) -> dict[str, Any]:
    """Return what to write down so that `is_alive` can recognise the process later."""
    return {"host": host(), "boot": boot_id(), "pid": pid, "pid_start": start_ticks(pid)}


def is_alive(identity: dict[str, Any]) -> bool:
    """Return whether the process that was written down is alive on this host."""
    pid = identity.get("pid")
    if not pid or identity.get("host") != host() or identity.get("boot") != boot_id():
        return False
    return identity.get("pid_start") is not None and start_ticks(pid) == identity["pid_start"]


def read_command(pid: int) -> list[str] | None:
    """Return the words of a process of this user; None where nobody can tell, as without /proc. It
    is empty for a process of somebody else, and for one that has ended."""
    if not Path("/proc/self/cmdline").exists():
        return None
    try:
        if os.stat(f"/proc/{pid}").st_uid != os.geteuid():
            return []
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return []
    return os.fsdecode(words).split("\0")[:-1]


def name_interrupt(number: int) -> str:
    """Return who stopped a process, as records name it: Ctrl-C, or a signal from elsewhere."""
    found = signal.Signals(number)
    return "Ctrl-C" if found is signal.SIGINT else f"{found.name}, sent to rampup"
