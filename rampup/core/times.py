"""Times in settings: limits as Slurm writes them (`90` is minutes, `1:30:00`), and intervals
(`15min`, `100steps`). Pure."""

import re

from rampup.core.spec import Every
from rampup.errors import Refused

EVERY = re.compile(r"(\d+) ?(steps?|epochs?|s|min|h)")
SECONDS = {"s": 1, "min": 60, "h": 3600}


def seconds_of(text: str) -> int:
    """Seconds of a time limit. A bare number means minutes, as everywhere in Slurm."""
    days, dash, clock = text.strip().rpartition("-")
    parts = clock.split(":")
    numbers = [int(part) for part in (days or "0", *parts) if part.isdigit()]
    if len(numbers) != len(parts) + 1 or len(parts) > 3 or (dash and not days):
        raise Refused(
            f"time limit {text!r} is not understood",
            "write minutes, H:MM:SS or D-HH:MM:SS, e.g. --time 1:30:00",
        )
    day, rest = numbers[0], numbers[1:]
    if dash:
        hours, minutes, seconds = [*rest, 0, 0][:3]
    elif len(rest) == 1:
        hours, minutes, seconds = 0, rest[0], 0
    elif len(rest) == 2:
        hours, minutes, seconds = 0, rest[0], rest[1]
    else:
        hours, minutes, seconds = rest
    total = ((day * 24 + hours) * 60 + minutes) * 60 + seconds
    if total <= 0:
        raise Refused(
            f"time limit {text!r} is no time at all", "give at least a second, e.g. --time 0:30"
        )
    return total


def every_of(text: str) -> Every:
    """The value of `checkpoint.every`."""
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
            f"checkpoint.every = {text!r} is no interval",
            "checkpoint.every=never writes none at all",
        )
    if unit in SECONDS:
        return Every("seconds", number * SECONDS[unit])
    return Every("epochs" if unit.startswith("epoch") else "steps", number)
