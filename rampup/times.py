"""Time limits as Slurm writes them: `90` is minutes, `1:30:00`, `2-00:00:00`. Pure."""

from rampup.errors import Refused


def seconds_of(text: str) -> int:
    """Seconds of a time limit. A bare number means minutes, as everywhere in Slurm."""
    days, dash, clock = text.strip().rpartition("-")
    parts = clock.split(":")
    numbers = [int(part) for part in (days or "0", *parts) if part.isdigit()]
    if len(numbers) != len(parts) + 1 or len(parts) > 3 or (dash and not days):
        raise Refused(
            f"time limit {text!r} is not understood", "write minutes, H:MM:SS or D-HH:MM:SS, e.g. --time 1:30:00"
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
        raise Refused(f"time limit {text!r} is no time at all", "give at least a second, e.g. --time 0:30")
    return total
