"""What this machine has: CPUs, memory, GPUs. Measured only: doctor.py and request.py judge.

A container or a batch job gets less than the machine, so the limits of affinity and cgroups (both
versions) count. Nothing here imports a framework or takes longer than a moment.
"""

import os
import platform
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

CGROUP_ROOT = Path("/sys/fs/cgroup")
OWN_CGROUPS = Path("/proc/self/cgroup")
DEVICES = Path("/dev")
NVIDIA_SMI_TIMEOUT_S = 20


class Cpus(NamedTuple):
    machine: int
    allowed: int
    """Those that this process may run on: what programs see."""
    limit: float | None
    """What a cgroup grants in CPU time, when that is less."""


class Memory(NamedTuple):
    total: int
    """Bytes, within the limit of the cgroup."""
    free: int


def cpus() -> Cpus:
    machine = os.cpu_count() or 1
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else machine
    limit = min(_cpu_limits(), default=None)
    return Cpus(machine, allowed, limit if limit is not None and limit < allowed else None)


def memory() -> Memory | None:
    """None where the system does not tell."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    kilobytes = {
        name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines)
    }
    total, free = kilobytes["MemTotal"] * 1024, kilobytes["MemAvailable"] * 1024
    for limit, used in _memory_limits():
        total, free = min(total, limit), min(free, max(0, limit - used))
    return Memory(total, free)


def gpus() -> list[str]:
    """The NVIDIA GPUs as the driver names them; their device files when its tool is not there to
    ask."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return gpu_files()
    try:
        done = subprocess.run(
            [tool, "-L"], capture_output=True, text=True, timeout=NVIDIA_SMI_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [
        line.partition(" (UUID")[0] for line in done.stdout.splitlines() if line.startswith("GPU ")
    ]


def gpu_files() -> list[str]:
    return sorted(str(path) for path in DEVICES.glob("nvidia[0-9]*"))


def has_apple_gpu() -> bool:
    return platform.system() == "Darwin" and platform.machine() == "arm64"


def _cpu_limits() -> Iterator[float]:
    for directory, version in _own_cgroups("cpu"):
        if version == 2:
            quota, _, period = _content(directory / "cpu.max").partition(" ")
        else:
            quota, period = (
                _content(directory / "cpu.cfs_quota_us"),
                _content(directory / "cpu.cfs_period_us"),
            )
        if quota.isdigit() and period.isdigit():
            yield int(quota) / int(period)


def _memory_limits() -> Iterator[tuple[int, int]]:
    names = {
        1: ("memory.limit_in_bytes", "memory.usage_in_bytes"),
        2: ("memory.max", "memory.current"),
    }
    for directory, version in _own_cgroups("memory"):
        limit, used = (_content(directory / name) for name in names[version])
        if limit.isdigit() and used.isdigit():
            yield int(limit), int(used)


def _own_cgroups(controller: str) -> Iterator[tuple[Path, int]]:
    """The cgroups that bind this process, the outer ones too, each with the version of its
    interface."""
    for line in _content(OWN_CGROUPS).splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        mount, version = (CGROUP_ROOT / controllers, 1) if controllers else (CGROUP_ROOT, 2)
        inner = PurePosixPath(path.lstrip("/"))
        for place in (inner, *inner.parents):
            yield mount / place, version


def _content(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
