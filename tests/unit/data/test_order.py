"""The order of the data follows from seed and epoch; pieces and shards hold every sample once."""

from itertools import pairwise

import numpy as np
import pytest

from rampup.data.order import permutation, piece, shard


def test_an_order_is_fixed_for_ever() -> None:
    assert permutation(1, 1, 10).tolist() == [0, 6, 5, 3, 4, 9, 7, 8, 2, 1]


def test_an_order_has_every_sample_once() -> None:
    assert sorted(permutation(3, 2, 1000).tolist()) == list(range(1000))
    assert permutation(3, 2, 0).tolist() == []


def test_seed_and_epoch_change_the_order() -> None:
    orders = [permutation(seed, epoch, 100).tolist() for seed in (0, 1, 2**63) for epoch in (1, 2)]
    assert len({tuple(order) for order in orders}) == 6
    assert np.array_equal(permutation(1, 2, 100), permutation(1, 2, 100))


@pytest.mark.parametrize("size", [0, 1, 5, 8, 1009])
@pytest.mark.parametrize("world", [1, 2, 3, 4, 8])
def test_pieces_follow_each_other_and_differ_by_at_most_one(size: int, world: int) -> None:
    pieces = [piece(100, 100 + size, rank, world) for rank in range(world)]
    assert pieces[0][0] == 100 and pieces[-1][1] == 100 + size
    assert all(before[1] == after[0] for before, after in pairwise(pieces))
    sizes = [end - begin for begin, end in pieces]
    assert max(sizes) - min(sizes) <= 1 and min(sizes) >= 0
    assert [shard(size, rank, world) for rank in range(world)] == [
        (low - 100, high - 100) for low, high in pieces
    ]
