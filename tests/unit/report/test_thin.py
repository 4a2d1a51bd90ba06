"""Thinning keeps the picture: spikes, ends, order, and never a point that was not measured."""

import random
import time

import pytest

from rampup.report.thin import LIMIT, choose_limit, thin


def test_a_short_curve_stays_as_it_is() -> None:
    assert thin([1, 2, 3], [5.0, 4.0, 6.0], 3) == ([1, 2, 3], [5.0, 4.0, 6.0])


def test_spikes_survive_in_a_million_rows() -> None:
    chance = random.Random(1)
    ys = [chance.random() for _ in range(1_000_000)]
    up, down = 123_457, 876_543
    ys[up], ys[down] = 50.0, -50.0
    began = time.thread_time()
    xs, kept = thin(range(len(ys)), ys)
    assert time.thread_time() - began < 3
    assert LIMIT * 0.9 < len(kept) <= LIMIT
    assert (up, 50.0) in zip(xs, kept, strict=True) and (down, -50.0) in zip(xs, kept, strict=True)


@pytest.mark.parametrize("length", [17, 100, 1001, 4999])
@pytest.mark.parametrize("limit", [16, 50, 999])
def test_what_is_kept_was_measured_and_stays_in_order(length: int, limit: int) -> None:
    chance = random.Random(length)
    points = [(float(place), chance.gauss(0, 1)) for place in range(length)]
    xs, ys = thin([x for x, _ in points], [y for _, y in points], limit)
    assert len(xs) == len(ys) <= max(limit, 3)
    assert xs == sorted(set(xs)) and set(zip(xs, ys, strict=True)) <= set(points)
    assert (xs[0], xs[-1]) == (0.0, length - 1.0)
    assert max(ys) == max(y for _, y in points) and min(ys) == min(y for _, y in points)


def test_all_curves_together_stay_within_the_budget() -> None:
    assert choose_limit([10, 2000], 3000) == LIMIT
    lengths = [100_000] * 60 + [5] * 100
    limit = choose_limit(lengths, 30_000)
    assert sum(min(length, limit) for length in lengths) <= 30_000
    assert limit == 250  # halved three times and not once more
