"""Times and amounts of memory as people and Slurm write them: time limits (`90` is minutes,
`1:30:00`, `1h30m`), intervals (`15min`, `100steps`), and the columns of Slurm's own answers.

The configuration, the Slurm scheduler and the checks of a request use it. Pure functions: what a
user typed wrongly is refused, what Slurm wrote differently is None.
"""

import re

from rampup.core.declared import Every
from rampup.errors import Refused

EVERY = re.compile(r"(\d+) ?(steps?|epochs?|s|min|h)")
SPAN = re.compile(
    r"((?P<days>\d+)d)? ?((?P<hours>\d+)h)? ?((?P<minutes>\d+)m(in)?)? ?((?P<seconds>\d+)s)?"
)
TIME_FORMS = "minutes, 90m, 1h30m, MM:SS, H:MM:SS or D-HH:MM:SS"
"""How a time limit may be written; help and hints list it."""
SECONDS = {"s": 1, "min": 60, "h": 3600}
MEMORY = re.compile(r"(?P<number>\d+(\.\d+)?)(?P<unit>[KMGTP]?)B?", re.IGNORECASE)
MB = {"K": 1 / 1024, "": 1.0, "M": 1.0, "G": 1024.0, "T": 1024.0**2, "P": 1024.0**3}
CLOCK = re.compile(r"((?P<days>\d+)-)?((?P<hours>\d+):)?(?P<minutes>\d+):(?P<seconds>\d+(\.\d+)?)")


def parse_time_limit_s(text: str) -> int:
    """Return the seconds of a time limit. A bare number means minutes, as everywhere in Slurm."""
    span = SPAN.fullmatch(text.strip())
    if span is not None and any(span.groupdict().values()):
        day, hours, minutes, seconds = (int(part or 0) for part in span.groupdict().values())
    else:
        day, hours, minutes, seconds = _parse_slurm_time(text)
    total = ((day * 24 + hours) * 60 + minutes) * 60 + seconds
    if total <= 0:
        raise Refused(
            f"time limit {text!r} must be at least one second", "write for example --time 0:30"
        )
    return total


def _parse_slurm_time(text: str) -> tuple[int, int, int, int]:
    """Return the days, hours, minutes and seconds of a time as Slurm writes it."""
    days, dash, clock = text.strip().rpartition("-")
    parts = clock.split(":")
    numbers = [int(part) for part in (days or "0", *parts) if part.isdigit()]
    if len(numbers) != len(parts) + 1 or len(parts) > 3 or (dash and not days):
        raise Refused(
            f"time limit {text!r} is not understood",
            f"write {TIME_FORMS}, e.g. --time 1:30:00",
        )
    day, rest = numbers[0], numbers[1:]
    if dash:
        hours, minutes, seconds = [*rest, 0, 0][:3]
    elif len(rest) == 3:
        hours, minutes, seconds = rest
    else:
        hours, minutes, seconds = 0, *[*rest, 0][:2]
    return day, hours, minutes, seconds


def parse_interval(text: str) -> Every:
    """Read the value of `checkpoint.every`."""
    if text in ("auto", "never"):
        return Every("auto" if text == "auto" else "never")
    found = EVERY.fullmatch(text)
    if found is None:
        raise Refused(
            f"checkpoint.every = {text!r} is not understood",
            "write auto, 100steps, 30s, 15min, 2h, 1epoch or never",
        )
    number, unit = int(found[1]), found[2]
    if number == 0:
        raise Refused(
            f"checkpoint.every = {text!r} is not an interval",
            "to write none: checkpoint.every=never",
        )
    if unit in SECONDS:
        return Every("seconds", number * SECONDS[unit])
    return Every("epochs" if unit.startswith("epoch") else "steps", number)


def parse_memory_mb(text: str) -> float | None:
    """Read `391376K`, `1.5G` or `4000`: a bare number means megabytes. None for any other text."""
    found = MEMORY.fullmatch(text.strip())
    return float(found["number"]) * MB[found["unit"].upper()] if found else None


def parse_clock_s(text: str) -> float | None:
    """Read `1-02:03:04`, `02:03:04` or `01:26.920`. None for UNLIMITED, Partition_Limit and the
    like."""
    found = CLOCK.fullmatch(text.strip())
    if found is None:
        return None
    hours = 24 * int(found["days"] or 0) + int(found["hours"] or 0)
    return (60 * hours + int(found["minutes"])) * 60 + float(found["seconds"])
