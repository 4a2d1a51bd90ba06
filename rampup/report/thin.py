"""Fewer points for the same picture: the lowest and the highest of every stretch are kept, so that
no spike is lost.

Used by charts.py, because a curve of a million rows would neither fit into a page nor on a screen.
Pure; it never makes up a point: all that remains was measured.
"""

from collections.abc import Sequence

LIMIT = 2000
"""Points of one curve: about two for every pixel of a wide chart."""


def thin(
    xs: Sequence[float], ys: Sequence[float], limit: int = LIMIT
) -> tuple[list[float], list[float]]:
    """At most `limit` of the points, in their order; the first and the last are always among
    them."""
    if len(ys) <= limit:
        return list(xs), list(ys)
    kept = [0, *_extremes(ys, max(1, (limit - 2) // 2)), len(ys) - 1]
    return [xs[index] for index in kept], [ys[index] for index in kept]


def _extremes(ys: Sequence[float], buckets: int) -> list[int]:
    """Where the lowest and the highest value of each bucket stand, without the ends of the
    whole."""
    found: list[int] = []
    inner = len(ys) - 2
    for bucket in range(buckets):
        begin, end = 1 + bucket * inner // buckets, 1 + (bucket + 1) * inner // buckets
        stretch = list(ys[begin:end])
        if stretch:
            found += sorted(
                {begin + stretch.index(min(stretch)), begin + stretch.index(max(stretch))}
            )
    return found


def fitting_limit(lengths: Sequence[int], budget: int, limit: int = LIMIT) -> int:
    """The largest limit, halved as often as needed, with which all curves together stay within
    `budget` points."""
    while limit > 16 and sum(min(length, limit) for length in lengths) > budget:
        limit //= 2
    return limit
