"""Batch normalisation over all replicas: the same outputs, gradients and statistics as one device
with all samples."""

from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

if find_spec("tf_keras") is None:
    pytest.skip("it needs pip install 'rampup[keras]'", allow_module_level=True)

from rampup.engines.keras.batch_statistics import Pass, in_pass, normalise
from rampup.engines.keras.setup import tf, tf_keras
from rampup.keras import BatchNormalization

DRAWS = np.random.RandomState(0)
INPUTS = (DRAWS.normal(size=(6, 5, 4)) * [1, 2, 3, 4] + [0, 50, -3, 1]).astype(np.float32)
UPSTREAM = DRAWS.normal(size=INPUTS.shape).astype(np.float32)


def apply(layer: Any, inputs: Any, upstream: Any) -> tuple[Any, ...]:
    """Return the output, and the gradients of the input and of the two parameters."""
    with tf.GradientTape() as tape:
        given = tf.constant(inputs)
        tape.watch(given)
        output = layer(given, training=True)
        loss = tf.reduce_sum(output * upstream)
    gradients = tape.gradient(loss, [given, layer.gamma, layer.beta])
    return output.numpy(), *(each.numpy() for each in gradients)


def make(kind: Any, **named: Any) -> Any:
    layer = kind(epsilon=1e-3, **named)
    layer.build(INPUTS.shape)
    layer.gamma.assign([1.0, 2.0, 0.5, -1.0])
    layer.beta.assign([0.0, 1.0, -1.0, 2.0])
    return layer


def test_on_one_device_it_is_that_of_keras() -> None:
    ours = make(BatchNormalization, decay=0.9)
    theirs = make(tf_keras.layers.BatchNormalization, momentum=0.9)
    for mine, other in zip(
        apply(ours, INPUTS, UPSTREAM), apply(theirs, INPUTS, UPSTREAM), strict=True
    ):
        np.testing.assert_allclose(mine, other, rtol=2e-3, atol=2e-4)
    np.testing.assert_allclose(ours.moving_mean, theirs.moving_mean, rtol=1e-4)
    np.testing.assert_allclose(ours(INPUTS), theirs(INPUTS), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("sizes", [(3, 3), (5, 1), (2, 3, 1)])
def test_pieces_of_any_size_make_the_statistics_of_the_whole(sizes: tuple[int, ...]) -> None:
    """Replica after replica: first what each adds, then with the sum of all."""
    gamma, beta = tf.constant([1.0, 2.0, 0.5, -1.0]), tf.zeros([4])
    whole, mean, variance = normalise(tf.constant(INPUTS), gamma, beta, 1e-3, Pass(None, None))
    added: list[Any] = []

    def collect(flat: Any) -> Any:
        added.append(flat)
        return flat

    cuts = np.cumsum(sizes)[:-1]
    pieces = np.split(INPUTS, cuts)
    for piece in pieces:
        normalise(tf.constant(piece), gamma, beta, 1e-3, Pass(collect, 1 / 6))
    total = tf.add_n(added)
    for piece, expected in zip(pieces, np.split(whole.numpy(), cuts), strict=True):
        found = normalise(
            tf.constant(piece), gamma, beta, 1e-3, Pass(lambda _: tf.identity(total), 1 / 6)
        )
        np.testing.assert_allclose(found[0], expected, atol=5e-5)
        np.testing.assert_allclose(found[1], mean, rtol=1e-6)
        np.testing.assert_allclose(found[2], variance, rtol=1e-4)


def test_samples_without_weight_do_not_count() -> None:
    """Those of a replica that has no part in a short batch."""
    layer = make(BatchNormalization, decay=0.5)
    with in_pass(Pass(lambda flat: flat, 0.0)):
        layer(INPUTS, training=True)
    assert np.all(layer.moving_mean.numpy() == 0)


def test_recomputed_statistics_are_those_of_all_batches() -> None:
    layer = make(BatchNormalization, decay=0.9)
    layer.moving_mean.assign([9.0] * 4)
    for before, batch in enumerate(np.split(INPUTS, 3)):
        with in_pass(Pass(None, None, tf.constant(float(before)))):
            layer(batch, training=True)
    np.testing.assert_allclose(layer.moving_mean, INPUTS.mean((0, 1)), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(layer.moving_variance, INPUTS.var((0, 1)), rtol=1e-4)
    assert np.abs(layer(INPUTS).numpy() - layer.beta).mean() < 5
