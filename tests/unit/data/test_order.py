"""The order of the data follows from seed and epoch; pieces and shards hold every sample once."""

from itertools import pairwise

import numpy as np
import pytest

from rampup.data.order import block_permutation, permutation, piece, shard
from rampup.data.reader import Blocks


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


BLOCKS = Blocks(np.array([0, 100, 170, 171, 400, 512, 600]), mixed=3)


def test_an_order_by_blocks_has_every_sample_once_and_changes_with_seed_and_epoch() -> None:
    orders = [
        block_permutation(seed, epoch, 650, BLOCKS, 48)
        for seed, epoch in [(0, 0), (0, 1), (1, 0), (0, 0)]
    ]
    for order in orders:
        assert sorted(order.tolist()) == list(range(650))
    assert orders[0].tolist() == orders[3].tolist()
    assert orders[0].tolist() != orders[1].tolist() != orders[2].tolist()


def test_a_batch_stands_in_the_order_of_the_files_and_touches_few_blocks() -> None:
    order = block_permutation(4, 2, 650, BLOCKS, 48)
    batches = [order[begin : begin + 48] for begin in range(0, 650, 48)]
    for batch in batches:
        assert (np.diff(batch) > 0).all()
        assert len(set(np.searchsorted(BLOCKS.starts, batch, side="right"))) <= 6
    first = np.searchsorted(BLOCKS.starts, batches[0], side="right")
    assert len(set(first)) >= 2, "the samples of several blocks are mixed"


def test_an_order_by_blocks_is_fixed_for_ever() -> None:
    small = Blocks(np.array([0, 3, 5]), mixed=2)
    assert block_permutation(1, 1, 8, small, 3).tolist() == [0, 2, 5, 1, 6, 7, 3, 4]
