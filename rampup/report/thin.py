"""Fewer points for the same picture: the lowest and the highest of every stretch are kept, so that
no spike is lost.

Used by charts.py, because a curve of a million rows would fit neither into a page nor on a screen.
Pure; it never makes up a point: all that remains was measured.
"""

from collections.abc import Sequence

LIMIT = 2000
"""Points of one curve: about two for every pixel of a wide chart."""
FEWEST_GAPS = 8


def thin(
    xs: Sequence[float], ys: Sequence[float], limit: int = LIMIT
) -> tuple[list[float], list[float]]:
    """Return at most `limit` of the points, in their order, the first and the last among them."""
    if len(ys) <= limit:
        return list(xs), list(ys)
    kept = [0, *_extremes(ys, max(1, (limit - 2) // 2)), len(ys) - 1]
    return [xs[index] for index in kept], [ys[index] for index in kept]


def _extremes(ys: Sequence[float], buckets: int) -> list[int]:
    """Return where the lowest and the highest value of each bucket stand, without the two ends of
    the whole."""
    found: list[int] = []
    inner = len(ys) - 2
    for bucket in range(buckets):
        begin, end = 1 + bucket * inner // buckets, 1 + (bucket + 1) * inner // buckets
        stretch = list(ys[begin:end])
        if stretch:
            lowest, highest = stretch.index(min(stretch)), stretch.index(max(stretch))
            found += sorted({begin + lowest, begin + highest})
    return found


def choose_limit(lengths: Sequence[int], budget: int, limit: int = LIMIT) -> int:
    """Return the largest limit, halved as often as needed, with which all curves together stay
    within `budget` points."""
    while limit > 16 and sum(min(length, limit) for length in lengths) > budget:
        limit //= 2
    return limit


def thin_line(
    xs: list[float], ys: list[float | None], limit: int
) -> tuple[list[float], list[float | None]]:
    """Thin a line that may be interrupted, and round its numbers.

    It is interrupted between attempts and where a value was not finite; each part keeps its share
    of the points.
    """
    xs, ys = _bridge_gaps(xs, ys, max(FEWEST_GAPS, limit // 8))
    if None in ys:
        xs, ys = _thin_parts(xs, ys, limit)
    else:
        kept_xs, kept_ys = thin(xs, [y for y in ys if y is not None], limit)
        xs, ys = kept_xs, list(kept_ys)
    return [_round(x, 9) for x in xs], [None if y is None else _round(y, 6) for y in ys]


def _bridge_gaps(
    xs: list[float], ys: list[float | None], most: int
) -> tuple[list[float], list[float | None]]:
    """Keep only the last gaps of a line that is interrupted without end, as by every second
    value."""
    gaps = [index for index, y in enumerate(ys) if y is None]
    bridged = set(gaps[:-most])
    if not bridged:
        return xs, ys
    kept = [index for index in range(len(ys)) if index not in bridged]
    return [xs[index] for index in kept], [ys[index] for index in kept]


def _thin_parts(
    xs: list[float], ys: list[float | None], limit: int
) -> tuple[list[float], list[float | None]]:
    ends = [index for index, y in enumerate(ys) if y is None] + [len(ys)]
    found_xs: list[float] = []
    found_ys: list[float | None] = []
    begin = 0
    for end in ends:
        part = [y for y in ys[begin:end] if y is not None]
        kept_xs, kept_ys = thin(xs[begin:end], part, max(4, limit // len(ends)))
        found_xs += [*kept_xs, *xs[end : end + 1]]
        found_ys += [*kept_ys, *ys[end : end + 1]]
        begin = end + 1
    return found_xs, found_ys


def _round(value: float, digits: int) -> float:
    """Leave out digits that no eye can see: they would be half of the page."""
    rounded = float(f"{value:.{digits}g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded
