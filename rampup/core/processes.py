"""Which process is meant, and whether it still lives. A pid alone lies: pids are used again, on
other hosts and after a reboot, so a process is named by host, boot, pid and start time."""

import os
import platform
from pathlib import Path
from typing import Any


def host() -> str:
    return os.environ.get("SLURMD_NODENAME") or platform.node()


def boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def started_at(pid: int) -> int | None:
    """Clock ticks from boot to the start of the process; None when it is gone (a zombie is gone
    too)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None if Path("/proc/self/stat").exists() else _started_without_proc(pid)
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[19])


def _started_without_proc(pid: int) -> int | None:
    try:
        os.kill(pid, 0)
    except OSError:
        return None
    return 0


def name_of(pid: int) -> dict[str, Any]:
    """What to write down so that `lives` can tell later."""
    return {"host": host(), "boot": boot_id(), "pid": pid, "pid_start": started_at(pid)}


def lives(named: dict[str, Any]) -> bool:
    """Whether the process that was written down lives on this host."""
    pid = named.get("pid")
    if not pid or named.get("host") != host() or named.get("boot") != boot_id():
        return False
    return named.get("pid_start") is not None and started_at(pid) == named["pid_start"]
