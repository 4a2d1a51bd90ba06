"""How batches are cut: as ever where no piece has one sample, and so that none has where it must
not."""

from itertools import chain

import numpy as np
import pytest

from rampup.core.settings import Settings
from rampup.data.order import EpochOrder, block_permutation, permutation, piece
from rampup.data.reader import Blocks
from rampup.engines.pieces import Cut, avoid_lone_samples, pieces_to_come
from rampup.errors import RampupError

SIZES = [(ranks, pieces) for ranks in (1, 2, 3, 5) for pieces in (1, 2, 4)]


def cut_as_ever(samples: int, ranks: int, pieces: int) -> list[list[tuple[int, int]]]:
    """By the rule that runs have always had: parts that differ by one sample, cut in the same
    way."""
    found = []
    for rank in range(ranks):
        begin, end = piece(0, samples, rank, ranks)
        number = min(pieces, end - begin)
        found.append([piece(begin, end, index, number) for index in range(number)])
    return found


@pytest.mark.parametrize(("ranks", "pieces"), SIZES)
def test_the_cut_of_other_models_never_changes(ranks: int, pieces: int) -> None:
    cut = Cut(ranks, pieces)
    for samples in range(1, 60):
        found = [cut.pieces_of(0, samples, rank) for rank in range(ranks)]
        assert found == cut_as_ever(samples, ranks, pieces)
        assert cut.active_ranks(samples) == sum(map(bool, found))


@pytest.mark.parametrize(("ranks", "pieces"), SIZES)
def test_no_piece_has_one_sample(ranks: int, pieces: int) -> None:
    cut = Cut(ranks, pieces, least=2)
    for samples in range(2, 60):
        found = [cut.pieces_of(7, 7 + samples, rank) for rank in range(ranks)]
        seen = [range(begin, end) for begin, end in chain(*found)]
        assert list(chain(*seen)) == list(range(7, 7 + samples)), "each once, in order"
        assert min(map(len, seen)) >= 2
        assert cut.active_ranks(samples) == sum(map(bool, found))
        before = cut_as_ever(samples, ranks, pieces)
        lonely = any(end - begin == 1 for begin, end in chain(*before))
        assert lonely == Cut(ranks, pieces).leaves_one(samples)
        if not lonely:
            assert [cut.pieces_of(0, samples, rank) for rank in range(ranks)] == before


def choose(
    cut: Cut, samples: int, batch_size: int, max_steps: int | None = None, layer: str = "layer 1"
) -> Cut:
    settings = Settings({"batch_size": batch_size, "max_steps": max_steps})
    return avoid_lone_samples(cut, samples, settings, lambda: layer)


def test_a_short_batch_is_cut_otherwise_where_a_layer_needs_it() -> None:
    assert choose(Cut(3, 2), 1300, 48).least == 2
    assert choose(Cut(3, 2), 1300, 48, layer="").least == 1
    assert choose(Cut(1, 2), 1300, 48).least == 1, "no piece has one sample"
    assert choose(Cut(3, 2), 1300, 48, max_steps=27).least == 1, "the short batch never comes"
    assert choose(Cut(3, 2), 1300, 48, max_steps=28).least == 2
    assert choose(Cut(8), 5, 48).least == 2, "the only batch"


def test_the_layer_is_looked_for_only_where_it_matters() -> None:
    def fail() -> str:
        raise AssertionError

    settings = Settings({"batch_size": 48, "max_steps": None})
    assert avoid_lone_samples(Cut(3, 2), 1308, settings, fail) == Cut(3, 2)


@pytest.mark.parametrize(
    ("cut", "samples", "batch_size", "message", "hint"),
    [
        (Cut(2), 97, 48, "the last batch of an epoch has one sample (97", "batch_size=49, or"),
        (Cut(1), 3, 2, "the last batch of an epoch has one sample (3", "batch_size=3, or"),
        # 7 would leave one as well
        (Cut(1), 43, 6, "the last batch of an epoch has one sample (43", "batch_size=8, or"),
        (Cut(3), 900, 5, "batch_size=5 on 3 ranks leaves one", "batch_size=6, or fewer ranks"),
        (Cut(1), 900, 1, "batch_size=1 on 1 rank leaves one", "batch_size=2"),
        (
            Cut(2, 3),
            97,
            11,
            "on 2 ranks with accumulate=3 leaves",
            "batch_size=13, or accumulate=2",
        ),
        (Cut(3, kind="device"), 900, 5, "on 3 devices leaves", "batch_size=6, or fewer devices"),
        (Cut(2), 1, 40, "there is one training sample", "more samples"),
    ],
)
def test_what_can_not_be_cut_is_refused(
    cut: Cut, samples: int, batch_size: int, message: str, hint: str
) -> None:
    with pytest.raises(RampupError) as caught:
        choose(cut, samples, batch_size)
    assert message in caught.value.message and "layer 1 can't normalise" in caught.value.message
    assert hint in caught.value.hint
    named = caught.value.hint.partition("batch_size=")[2].partition(",")[0]
    if named:
        choose(cut, samples, int(named))


def test_a_run_that_has_taken_steps_is_not_refused() -> None:
    settings = Settings({"batch_size": 48, "max_steps": None})
    found = avoid_lone_samples(Cut(2), 97, settings, lambda: "layer 1", refuses=False)
    assert [found.part(0, 1, rank) for rank in (0, 1)] == [(0, 1), (1, 1)]


@pytest.mark.parametrize("blocks", [None, Blocks(np.array([0, 30, 60, 90]), 2)])
@pytest.mark.parametrize("ranks", [1, 3])
def test_the_pieces_to_come_are_those_of_the_steps(ranks: int, blocks: Blocks | None) -> None:
    """Across the ends of epochs, from any step, in the order of the epoch."""
    samples, batch_size, cut = 97, 20, Cut(ranks, pieces=2)
    order_of = EpochOrder(5, samples, batch_size, blocks)
    places = (samples, batch_size, 3, 13)
    found = [list(pieces_to_come(cut, rank, order_of, *places)) for rank in range(ranks)]
    expected: list[list[list[int]]] = [[] for _ in range(ranks)]
    for step in range(3, 13):
        epoch, low = step // 5 + 1, step % 5 * batch_size
        order = (
            permutation(5, epoch, samples)
            if blocks is None
            else block_permutation(5, epoch, samples, blocks, batch_size)
        )
        for rank in range(ranks):
            pieces = cut.pieces_of(low, min(low + batch_size, samples), rank)
            expected[rank] += [order[begin:end].tolist() for begin, end in pieces]
    assert [[piece.tolist() for piece in pieces] for pieces in found] == expected
    assert sorted(order_of(2).tolist()) == list(range(samples))
    assert order_of(2) is order_of(2), "it is computed once"
