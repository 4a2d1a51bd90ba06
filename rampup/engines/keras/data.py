"""tf.data pipelines whose order follows from the step alone, so that any step can be the first.

engine.py builds one for the training, evaluation.py one for the validation. An element is one
global step as this rank sees it: for each of its replicas the samples, and the weight of each of
them. The same samples form the same global batch on any number of replicas. Batches are gathered
whole, ahead of the training, in TensorFlow's threads. Nothing in here has a state to save.
"""

import zlib
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rampup.data.order import permutation, shard
from rampup.engines.keras.setup import convert, tf
from rampup.engines.keras.task import Data
from rampup.engines.keras.world import World
from rampup.engines.pieces import Cut
from rampup.errors import RampupError

SAMPLES_AT_ONCE, BYTES_AT_ONCE = 4096, 4 * 2**20
Indices = NDArray[np.int64]


def check_same(train: Data, check: Data | None, world: World) -> str:
    """Return a checksum of the data, and refuse data that is not the same on every rank.

    It covers the number of samples and three of them. Ranks with different orders would train on
    some samples twice and on others never, and nobody would notice. Numbers that each rank has
    computed may differ in their last bits, where nodes have different CPUs.
    """
    found = [_fingerprint(data) for data in (train, check)]
    mine = np.array([fingerprint[:-1] for fingerprint in found], np.float64)
    ranks = [
        each.view(np.float64).reshape(mine.shape)
        for each in world.gather(mine.view(np.int32).reshape(-1))
    ]
    for rank, other in enumerate(ranks):
        same = np.allclose(other[:, 2:], ranks[0][:, 2:], rtol=1e-3, atol=1e-6, equal_nan=True)
        if not same or not np.array_equal(other[:, :2], ranks[0][:, :2]):
            sizes = [each[:, 0].astype(int).tolist() for each in (other, ranks[0])]
            world.final_barrier()  # together: else one would take the error of another for its own
            raise RampupError(
                f"rank {rank} has different data from rank 0: {sizes[0]} samples to train and to "
                f"validate, and {sizes[1]}",
                "load the same on every rank: give np.random.default_rng() a seed, and sort what a "
                "folder lists",
            )
    return f"{zlib.crc32(repr(found).encode()):08x}"


def _fingerprint(data: Data | None) -> tuple[int, int, float, float, float, int]:
    """Return the number of samples, and numbers about the first, the middle and the last one.

    These are a checksum of all that is not a fraction, for each sample the size of its fractions,
    and a checksum of everything.
    """
    if data is None or not len(data):
        return 0, 0, 0.0, 0.0, 0.0, 0
    found = data.batch(tf.constant([0, len(data) // 2, len(data) - 1], tf.int64))
    parts = tf.nest.flatten(found, expand_composites=True)
    fractions = [part for part in parts if part.dtype.is_floating]
    others = [part for part in parts if not part.dtype.is_floating]
    rows = [
        tf.reduce_sum(tf.abs(tf.reshape(tf.cast(part, tf.float64), [3, -1])), axis=1)
        for part in fractions
    ]
    one, two, three = tf.add_n([tf.zeros([3], tf.float64), *rows]).numpy().tolist()
    return len(data), _checksum(others), one, two, three, _checksum(parts)


def _checksum(parts: list[Any]) -> int:
    return zlib.crc32(b"".join(tf.io.serialize_tensor(part).numpy() for part in parts))


def training_batches(
    data: Data, batch_size: int, seed: int, first: int, last: int, world: World, cut: Cut
) -> Any:
    """Return the steps from `first` up to, not including, `last`, cut for the replicas.

    Each is a tuple ((x, y, weight), ...) with a part for each replica of this rank. Python is
    called once in an epoch, for its order, and several small batches are gathered at once: the work
    for each step would cost more than that for each sample. Data that is read sample by sample has
    its own.
    """
    streamed = getattr(data, "training_batches", None)
    if streamed:
        return streamed(batch_size, seed, first, last, world, cut)
    size = len(data)
    whole, rest = divmod(size, batch_size)
    steps = whole + bool(rest)
    together = _batches_at_once(data, batch_size)
    cuts = [BatchCut(each, world, cut) for each in (batch_size if whole else 0, rest) if each]

    def order_of(epoch: Any) -> list[Indices]:
        order = permutation(seed, int(epoch) + 1, size)
        split = whole * batch_size
        batches = [order[:split].reshape(whole, batch_size)] * bool(whole) + [
            order[None, split:]
        ] * bool(rest)
        return [
            part for cut, each in zip(cuts, batches, strict=True) for part in cut.pieces_of(each)
        ]

    def steps_of(epoch: Any) -> Any:
        found = tf.numpy_function(order_of, [epoch], [tf.int64] * len(cuts) * world.local_replicas)
        done = tf.where(epoch == first // steps, tf.constant(first % steps, tf.int64), 0)
        here = world.local_replicas
        dataset = cuts[0].dataset(data, found[:here], done, together)
        return (
            dataset.concatenate(cuts[1].dataset(data, found[here:], 0, 1)) if cuts[1:] else dataset
        )

    epochs = tf.data.Dataset.range(first // steps, -(-last // steps))
    return epochs.flat_map(steps_of).prefetch(2).unbatch().take(last - first)


class BatchCut:
    """How batches of one size are cut: the pieces of this rank's replicas, and their weights.

    The weights of a global batch add up to 1. A replica that has no part in a small batch computes
    with samples of weight 0, because nothing has no mean: with as few as a piece may have.
    """

    def __init__(self, size: int, world: World, cut: Cut) -> None:
        first = world.rank * world.local_replicas
        parts = [cut.part(0, size, first + index) for index in range(world.local_replicas)]
        idle = (0, min(size, cut.least), 0.0)
        self.parts = [(begin, end, 1 / size) if begin < end else idle for begin, end in parts]
        """Of each replica the samples in a batch, and the weight of each of them."""

    def pieces_of(self, batches: Indices) -> list[Indices]:
        """Return this rank's pieces of whole batches, one batch in each row."""
        return [batches[:, begin:end] for begin, end, _ in self.parts]

    def dataset(self, data: Data, parts: Any, skipped: Any, together: int) -> Any:
        """Return a pipeline with several steps in each element."""
        for part, (begin, end, _) in zip(parts, self.parts, strict=True):
            part.set_shape([None, end - begin])

        def samples(*parts: Any) -> Any:
            return tuple(
                (*_batches(data, part), tf.fill(tf.shape(part)[:1], weight))
                for part, (_, _, weight) in zip(parts, self.parts, strict=True)
            )

        return (
            tf.data.Dataset.from_tensor_slices(tuple(parts))
            .skip(skipped)
            .batch(together)
            .map(samples)
        )


def _batches(data: Data, indices: Any) -> Any:
    """Return the batches for a table of positions, one batch in each row."""
    found = convert(data.batch)(tf.reshape(indices, [-1]))

    def in_rows(samples: Any) -> Any:
        rows = tf.reshape(samples, tf.concat([tf.shape(indices), tf.shape(samples)[1:]], axis=0))
        return tf.ensure_shape(rows, [None, *indices.shape[1:], *samples.shape[1:]])

    return tf.nest.map_structure(in_rows, found)


def _batches_at_once(data: Data, batch_size: int) -> int:
    """Return how many batches to gather at once without taking much memory."""
    sample: int = sum(
        max(part.numpy().nbytes, 64)
        for part in tf.nest.flatten(data.batch(tf.range(1, dtype=tf.int64)))
    )
    return max(1, min(SAMPLES_AT_ONCE, BYTES_AT_ONCE // sample) // batch_size)


def validation_batches(data: Data, batch_size: int, batches: int | None, world: World) -> Any:
    """Return this rank's shard in batches ((x, y), ...), each sample once and nothing padded.

    `batches` limits their number. Data that is read sample by sample has its own.
    """
    streamed = getattr(data, "validation_batches", None)
    if streamed:
        return streamed(batch_size, batches, world)
    low, high = shard(len(data), world.rank, world.size)
    if batches is not None:
        high = min(high, low + batches * batch_size)

    def samples(begin: Any) -> Any:
        end = tf.minimum(begin + batch_size, high)
        cuts = [
            begin + (end - begin) * index // world.local_replicas
            for index in range(world.local_replicas + 1)
        ]
        return tuple(convert(data.batch)(tf.range(*pair)) for pair in pairwise(cuts))

    return tf.data.Dataset.range(low, high, batch_size).map(samples).prefetch(2)
