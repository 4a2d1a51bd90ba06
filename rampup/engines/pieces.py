"""How a global batch is cut into pieces: one or more for each rank, by its size alone.

The same samples form the same global batch on any number of ranks, and only the cuts differ. A
layer that normalises over the batch needs two values of each channel, and one sample may be one
value. For a model with such a layer a short batch goes to fewer ranks, in fewer pieces, so that
none has exactly one sample; what can't be cut so is refused before the first step. The engines of
torch, Lightning and Keras find the layer. Nothing in here imports a framework.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import count

import numpy as np
from numpy.typing import NDArray

from rampup.core.settings import Settings
from rampup.data.order import piece
from rampup.errors import RampupError

ENOUGH = 2
"""The samples that every layer can normalise over."""


@dataclass(frozen=True)
class Cut:
    """The rule by which all batches of a run are cut, the same on every rank."""

    ranks: int
    pieces: int = 1
    """The number of pieces of each rank: accumulate."""
    least: int = 1
    """The smallest number of samples in a piece."""
    kind: str = "rank"
    """How messages name what the ranks are."""

    def active_ranks(self, samples: int) -> int:
        """Return how many ranks have a part in a batch of this size; they are the first ones."""
        return min(self.ranks, max(1, samples // self.least))

    def part(self, low: int, high: int, rank: int) -> tuple[int, int]:
        """Return a rank's contiguous part of the batch [low, high), which may be empty."""
        active = self.active_ranks(high - low)
        return piece(low, high, rank, active) if rank < active else (high, high)

    def pieces_of(self, low: int, high: int, rank: int) -> list[tuple[int, int]]:
        """Return the pieces of a rank's part, of which none is empty."""
        begin, end = self.part(low, high, rank)
        if begin == end:
            return []
        number = min(self.pieces, max(1, (end - begin) // self.least))
        return [piece(begin, end, index, number) for index in range(number)]

    def leaves_one(self, samples: int) -> bool:
        """Return whether a batch of this size has a piece of one sample where `least` is 1."""
        return samples < ENOUGH * self.ranks * self.pieces


def pieces_to_come(
    cut: Cut,
    rank: int,
    order_of: Callable[[int], NDArray[np.int64]],
    samples: int,
    batch_size: int,
    first: int,
    last: int,
) -> Iterator[NDArray[np.int64]]:
    """Yield the samples of a rank's pieces from step `first` up to, not including, `last`.

    Across the ends of epochs, so that data that is read ahead is ready when the next one begins.
    """
    steps = -(-samples // batch_size)
    for step in range(first, last):
        order, low = order_of(step // steps + 1), step % steps * batch_size
        for begin, end in cut.pieces_of(low, min(low + batch_size, samples), rank):
            yield order[begin:end]


def avoid_lone_samples(
    cut: Cut,
    samples: int,
    settings: Settings,
    find_layer: Callable[[], str],
    refuses: bool = True,
) -> Cut:
    """Return the cut for a model, given the number of training samples.

    `find_layer` returns the name of a layer that can't normalise over one sample, or nothing. It is
    called only where a batch of the run would have a piece of one sample.
    """
    sizes = _batch_sizes(samples, settings)
    if not any(cut.leaves_one(size) for size in sizes):
        return cut
    layer = find_layer()
    if not layer:
        return cut
    if refuses:
        _refuse_lone_samples(cut, samples, settings.batch_size, sizes, layer)
    return replace(cut, least=ENOUGH)


def require_equal_pieces(cut: Cut, samples: int, settings: Settings) -> None:
    """Refuse batches of which the ranks would get different numbers of pieces: ranks that normalise
    together wait for each other in every piece."""
    least = cut.ranks * cut.pieces
    for size in _batch_sizes(samples, settings):
        if size >= least:
            continue
        where = (
            f"batch_size={size}"
            if size == settings.batch_size
            else (
                f"the last batch of an epoch ({samples} samples, batch_size={settings.batch_size})"
            )
        )
        other = next(
            it for it in count(max(least, settings.batch_size)) if not 0 < samples % it < least
        )
        raise RampupError(
            f"{where} has fewer samples than the {least} pieces of {_describe(cut)}, "
            "and ranks that normalise together need one each",
            f"batch_size={other}, or batchnorm_group_size=1",
        )


def _batch_sizes(samples: int, settings: Settings) -> list[int]:
    """Return the sizes of the batches that the run takes, without the last one of an epoch where it
    ends before that."""
    whole, rest = divmod(samples, settings.batch_size)
    sizes = [settings.batch_size] if whole else []
    ends_before = settings.max_steps is not None and settings.max_steps <= whole
    return sizes if not rest or ends_before else [*sizes, rest]


def _refuse_lone_samples(
    cut: Cut, samples: int, batch_size: int, sizes: list[int], layer: str
) -> None:
    reason = f"{layer} can't normalise over one sample"
    if samples < ENOUGH:
        raise RampupError(f"there is one training sample, and {reason}", "train on more samples")
    other = _find_batch_size(cut, samples, batch_size)
    if batch_size in sizes and cut.leaves_one(batch_size):
        raise RampupError(
            f"batch_size={batch_size} on {_describe(cut)} leaves one sample in a piece, "
            f"and {reason}",
            f"batch_size={other}{_find_alternative(cut, batch_size)}",
        )
    if 1 in sizes:
        raise RampupError(
            f"the last batch of an epoch has one sample ({samples} samples, "
            f"batch_size={batch_size}), and {reason}",
            f"batch_size={other}, or train on {samples - 1} samples",
        )


def _describe(cut: Cut) -> str:
    found = f"{cut.ranks} {cut.kind}{'' if cut.ranks == 1 else 's'}"
    return f"{found} with accumulate={cut.pieces}" if cut.pieces > 1 else found


def _find_alternative(cut: Cut, batch_size: int) -> str:
    """Return what helps beside a larger batch."""
    pieces = batch_size // (ENOUGH * cut.ranks)
    if cut.pieces > 1 and pieces:
        return f", or accumulate={pieces}"
    return f", or fewer {cut.kind}s" if cut.ranks > 1 else ""


def _find_batch_size(cut: Cut, samples: int, batch_size: int) -> int:
    """Return the next larger batch size that leaves no sample alone."""
    first = max(batch_size, ENOUGH * cut.ranks * cut.pieces)
    return next(size for size in count(first) if samples % size != 1)
