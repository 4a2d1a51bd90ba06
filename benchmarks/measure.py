"""Measuring on a noisy machine: the two sides alternate, the median is compared, the spread is shown."""

import statistics
import subprocess
import time
from collections.abc import Callable, Sequence

from msgspec import Struct


class Line(Struct, frozen=True):
    """One line of the table: `ours` against `theirs`, and the bound that must hold for ours / theirs."""

    name: str
    ours_s: float
    theirs_s: float
    ratio: float
    spread: str
    bound: str
    holds: bool


def timed(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def command(argv: Sequence[str], **options: object) -> Callable[[], object]:
    """A whole process, as a user starts it."""
    return lambda: subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **options)  # type: ignore[call-overload]


def compare(
    name: str, ours: Callable[[], object], theirs: Callable[[], object], at_most: float, repeats: int = 7
) -> Line:
    """Alternate both sides, so that a busy minute of the machine hits both."""
    ours(), theirs()  # warm caches are the common case
    pairs = [(timed(ours), timed(theirs)) for _ in range(repeats)]
    ratios = sorted(mine / other for mine, other in pairs)
    mine, other = (statistics.median(side) for side in zip(*pairs, strict=True))
    ratio = mine / other
    return Line(name, mine, other, ratio, f"{ratios[0]:.2f}-{ratios[-1]:.2f}", f"<= {at_most:g}x", ratio <= at_most)


def absolute(name: str, work: Callable[[], object], at_most_s: float, repeats: int = 5) -> Line:
    work()
    spent = sorted(timed(work) for _ in range(repeats))
    median = statistics.median(spent)
    return Line(
        name,
        median,
        at_most_s,
        median / at_most_s,
        f"{spent[0]:.2f}-{spent[-1]:.2f} s",
        f"<= {at_most_s:g} s",
        median <= at_most_s,
    )
