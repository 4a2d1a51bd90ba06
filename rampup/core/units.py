"""Slurm's own way of writing memory and time, read. Pure; slurm_usage.py and the checks of a
request use it."""

import re

MEMORY = re.compile(r"(?P<number>\d+(\.\d+)?)(?P<unit>[KMGTP]?)B?", re.IGNORECASE)
MB = {"K": 1 / 1024, "": 1.0, "M": 1.0, "G": 1024.0, "T": 1024.0**2, "P": 1024.0**3}
CLOCK = re.compile(r"((?P<days>\d+)-)?((?P<hours>\d+):)?(?P<minutes>\d+):(?P<seconds>\d+(\.\d+)?)")


def memory_mb(text: str) -> float | None:
    """`391376K`, `1.5G`, `4000`: a bare number is megabytes. None for what is no amount."""
    found = MEMORY.fullmatch(text.strip())
    return float(found["number"]) * MB[found["unit"].upper()] if found else None


def seconds(text: str) -> float | None:
    """`1-02:03:04`, `02:03:04`, `01:26.920`. None for UNLIMITED, Partition_Limit and the like."""
    found = CLOCK.fullmatch(text.strip())
    if found is None:
        return None
    hours = 24 * int(found["days"] or 0) + int(found["hours"] or 0)
    return (60 * hours + int(found["minutes"])) * 60 + float(found["seconds"])
