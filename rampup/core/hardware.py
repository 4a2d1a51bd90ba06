"""What this machine's CPU is good at, how its C library keeps memory, and whether a GPU is reserved.

Engines ask when a rank starts; the checks before a run ask too, on machines where no framework is
installed. It imports no framework and never touches a GPU.
"""

import ctypes
import os
import platform
from collections.abc import Mapping
from pathlib import Path

BF16_FLAGS = ("avx512_bf16", "amx_bf16")
M_MMAP_MAX, M_TRIM_THRESHOLD = -4, -1
"""Options of glibc's mallopt."""
CPUINFO = Path("/proc/cpuinfo")
NO_GPU = ("", "-1", "NoDevFiles", "none", "void")
"""Values of CUDA_VISIBLE_DEVICES that mean: no GPU."""


def bf16_is_fast(cpuinfo: Path = CPUINFO) -> bool:
    """Return whether the CPU computes in bfloat16 itself. One that does not emulates it, about ten
    times slower than fp32."""
    flags = _read_field("flags", cpuinfo).split()
    return any(flag in flags for flag in BF16_FLAGS)


def cpu_model(cpuinfo: Path = CPUINFO) -> str:
    """Return the maker's name for the CPU: another model may round sums differently."""
    return _read_field("model name", cpuinfo) or platform.machine()


def disable_malloc_trim() -> bool:
    """Make the C library keep freed memory for the next step, and return whether it does. A rank
    that computes on its CPU calls this once.

    Every step asks for the same large tensors again. glibc gives each of them back to the kernel
    when it is freed, and has to touch every page anew: a fifth of the time of a small convolutional
    network.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # only glibc has it
    if mallopt is None:
        return False
    return bool(mallopt(M_MMAP_MAX, 0)) and bool(mallopt(M_TRIM_THRESHOLD, -1))


def _read_field(name: str, cpuinfo: Path) -> str:
    """Return the first value of that name; empty where there is none."""
    try:
        text = cpuinfo.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
    for line in text.splitlines():
        if line.startswith(name):
            return line.partition(":")[2].strip()
    return ""


def find_reserved_gpu(
    gpus_per_node: int, environ: Mapping[str, str] = os.environ
) -> tuple[str, str] | None:
    """Return what reserves a GPU for this rank, and how to do without one; None when nothing does.

    A GPU that is reserved must not stand idle.
    """
    visible = environ.get("CUDA_VISIBLE_DEVICES", "")
    if gpus_per_node > 0:
        return f"gpus_per_node={gpus_per_node}", "ask for no GPU: --gpus-per-node 0"
    if visible not in NO_GPU:
        return (
            f"CUDA_VISIBLE_DEVICES={visible}",
            "take no GPU: --devices '', or unset CUDA_VISIBLE_DEVICES",
        )
    return None
