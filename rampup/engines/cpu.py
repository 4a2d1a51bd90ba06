"""What this machine's CPU is good at. Framework-free: the checks before a run ask it too, where torch may be absent."""

from pathlib import Path

BF16_FLAGS = ("avx512_bf16", "amx_bf16")


def bf16_is_fast(cpuinfo: Path = Path("/proc/cpuinfo")) -> bool:
    """Whether it computes in bfloat16 itself. One that does not emulates it, about ten times slower than fp32."""
    try:
        text = cpuinfo.read_text(encoding="ascii", errors="replace")
    except OSError:
        return False
    flags = next((line.split() for line in text.splitlines() if line.startswith("flags")), [])
    return any(flag in flags for flag in BF16_FLAGS)
