"""What this machine's CPU is good at. Framework-free: the checks before a run ask it too, where
torch may be absent."""

import ctypes
import platform
from pathlib import Path

BF16_FLAGS = ("avx512_bf16", "amx_bf16")
M_MMAP_MAX, M_TRIM_THRESHOLD = -4, -1
"""Options of glibc's mallopt."""
CPUINFO = Path("/proc/cpuinfo")


def bf16_is_fast(cpuinfo: Path = CPUINFO) -> bool:
    """Whether it computes in bfloat16 itself. One that does not emulates it, about ten times slower
    than fp32."""
    flags = _first("flags", cpuinfo).split()
    return any(flag in flags for flag in BF16_FLAGS)


def model_name(cpuinfo: Path = CPUINFO) -> str:
    """What the maker calls it: another one may round sums differently."""
    return _first("model name", cpuinfo) or platform.machine()


def keep_memory() -> bool:
    """Keep what is freed for the next step; whether that could be had. A rank that computes on its
    CPU calls it once.

    Every step asks for the same large tensors again. glibc gives each of them back to the kernel
    when it is freed, and has to touch every page anew: a fifth of the time of a small convolutional
    network.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # other C libraries have none
    return (
        mallopt is not None and bool(mallopt(M_MMAP_MAX, 0)) and bool(mallopt(M_TRIM_THRESHOLD, -1))
    )


def _first(name: str, cpuinfo: Path) -> str:
    """The first value of that name; empty where there is none."""
    try:
        text = cpuinfo.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
    found = (line.partition(":")[2].strip() for line in text.splitlines() if line.startswith(name))
    return next(found, "")
