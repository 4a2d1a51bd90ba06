"""Measuring on a noisy machine: the two sides alternate, the median is compared, the spread is
shown."""

import statistics
import subprocess
import time
from collections.abc import Callable, Sequence

from msgspec import Struct


class Line(Struct, frozen=True):
    """One line of the table: `ours` against `theirs` in seconds, and the bound that must hold for
    the ratio."""

    name: str
    ours_s: float
    theirs_s: float | None
    """None where the bound is a time."""
    ratio: float | None
    spread: str
    bound: str
    holds: bool
    unit: str = " s"
    """Of `ours_s` and `theirs_s`; a line may count something else."""


def timed(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def command(argv: Sequence[str], **options: object) -> Callable[[], object]:
    """A whole process, as a user starts it."""
    return lambda: subprocess.run(
        argv, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **options
    )  # type: ignore[call-overload]


def compare(
    name: str,
    ours: Callable[[], object],
    theirs: Callable[[], object],
    at_most: float,
    repeats: int = 7,
) -> Line:
    """Alternate both sides, so that a busy minute of the machine hits both."""
    ours(), theirs()  # warm caches are the common case
    pairs = [(timed(ours), timed(theirs)) for _ in range(repeats)]
    mine, other = medians(pairs)
    ratio = mine / other
    spread = spread_of([one / two for one, two in pairs])
    return Line(name, mine, other, ratio, spread, f"<= {at_most:g}x", ratio <= at_most)


def faster(name: str, pairs: Sequence[tuple[float, float]], at_least: float) -> Line:
    """Pairs are seconds, ours and theirs, measured one after the other; ours must be so many times
    faster."""
    ratios = [theirs / ours for ours, theirs in pairs]
    ratio = statistics.median(ratios)
    return Line(
        name, *medians(pairs), ratio, spread_of(ratios), f">= {at_least:g}x", ratio >= at_least
    )


def not_slower(name: str, pairs: Sequence[tuple[float, float]], at_most: float) -> Line:
    """The same, where ours may take so many times as long."""
    ratios = [ours / theirs for ours, theirs in pairs]
    ratio = statistics.median(ratios)
    return Line(
        name, *medians(pairs), ratio, spread_of(ratios), f"<= {at_most:g}x", ratio <= at_most
    )


def absolute(name: str, work: Callable[[], object], at_most_s: float, repeats: int = 5) -> Line:
    work()
    spent = [timed(work) for _ in range(repeats)]
    median = statistics.median(spent)
    return Line(
        name,
        median,
        None,
        None,
        f"{spread_of(spent)} s",
        f"<= {at_most_s:g} s",
        median <= at_most_s,
    )


def medians(pairs: Sequence[tuple[float, float]]) -> tuple[float, float]:
    ours, theirs = zip(*pairs, strict=True)
    return statistics.median(ours), statistics.median(theirs)


def spread_of(values: Sequence[float]) -> str:
    return f"{min(values):.2f}-{max(values):.2f}"
