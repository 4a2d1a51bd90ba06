"""Batch normalisation over all samples of a global batch, on any number of ranks and replicas.

A recipe builds its network with `rampup.keras.BatchNormalization`. The training step names the
pass that a layer is part of (`in_pass`): how replicas add up, and how much each sample counts.
Every replica then normalises with the statistics of the whole batch, as one device with all
samples would, through tf.distribute as well as through Horovod. `Recomputation` in recompute.py
computes the moving statistics anew with frozen weights. Nothing in here reads a value back.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rampup.engines.keras.setup import tf, tf_keras


@dataclass(frozen=True)
class Pass:
    """What a layer has to know about the pass of a batch through the model."""

    all_reduce: Callable[[Any], Any] | None
    """Returns the sum over all replicas; None where there is only one."""
    weight: Any
    """How much each sample of this replica counts; the weights of a global batch add up to 1."""
    before: Any = None
    """How many batches the moving statistics describe already, where they are recomputed."""


_current = threading.local()


@contextmanager
def in_pass(found: Pass) -> Iterator[None]:
    """Tell all layers that are called in this thread which pass it is."""
    outer = getattr(_current, "found", None)
    _current.found = found
    try:
        yield
    finally:
        _current.found = outer


@tf_keras.utils.register_keras_serializable("rampup")
class BatchNormalization(tf_keras.layers.Layer):  # type: ignore[misc]
    """Batch normalisation of the last axis over the whole global batch.

    `decay` is that of the moving statistics, per step; it may be a variable that is shared by
    several layers. All replicas have the same statistics.
    """

    synchronized = True

    def __init__(self, decay: Any = 0.99, epsilon: float = 1e-3, **named: Any) -> None:
        super().__init__(**named)
        self.decay, self.epsilon = decay, epsilon
        self.axis = [-1]

    def build(self, shape: Any) -> None:
        size = [shape[-1]]
        self.gamma = self.add_weight(name="gamma", shape=size, initializer="ones")
        self.beta = self.add_weight(name="beta", shape=size, initializer="zeros")
        moving = {
            "shape": size,
            "trainable": False,
            "synchronization": tf.VariableSynchronization.ON_READ,
            "aggregation": tf.VariableAggregation.MEAN,
        }
        self.moving_mean = self.add_weight(name="moving_mean", initializer="zeros", **moving)
        self.moving_variance = self.add_weight(name="moving_variance", initializer="ones", **moving)
        super().build(shape)

    def call(self, inputs: Any, training: bool = False) -> Any:
        if not training:
            scale = tf.math.rsqrt(self.moving_variance + self.epsilon) * self.gamma
            return inputs * scale + (self.beta - self.moving_mean * scale)
        found = getattr(_current, "found", None) or Pass(None, None)
        output, mean, variance = normalise(inputs, self.gamma, self.beta, self.epsilon, found)
        self._follow(mean, variance, found)
        return output

    def _follow(self, mean: Any, variance: Any, found: Pass) -> None:
        """Move the statistics towards those of this batch, or make it one of several."""
        if found.before is None:
            share = 1.0 - tf.cast(self.decay, tf.float32)
            spread: Any = 0.0
        else:
            share = 1.0 / (tf.cast(found.before, tf.float32) + 1.0)
            spread = tf.square(mean - self.moving_mean) * (1.0 - share)
        self.moving_variance.assign_add((variance + spread - self.moving_variance) * share)
        self.moving_mean.assign_add((mean - self.moving_mean) * share)

    def get_config(self) -> dict[str, Any]:
        decay = self.decay if isinstance(self.decay, float) else float(self.decay)
        return {**super().get_config(), "decay": decay, "epsilon": self.epsilon}


def normalise(inputs: Any, gamma: Any, beta: Any, epsilon: float, found: Pass) -> Any:
    """Return the normalised inputs, and the mean and the variance of each channel.

    The gradient is that of the whole batch, too: a sample changes the mean and the variance by
    which all others are normalised, also those on other replicas.
    """
    axes = list(range(inputs.shape.rank - 1))
    samples = tf.cast(tf.shape(inputs)[0], tf.float32)
    part = samples * tf.cast(found.weight, tf.float32) if found.weight is not None else 1.0
    count = tf.cast(tf.reduce_prod(tf.shape(inputs)[:-1]), tf.float32)

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def compute(inputs: Any, gamma: Any, beta: Any) -> Any:
        mean, variance = _moments(inputs, axes, part, found)
        inverse = tf.math.rsqrt(variance + epsilon)
        scale = inverse * gamma
        output = inputs * scale + (beta - mean * scale)

        def gradient(upstream: Any, *_: Any) -> tuple[Any, Any, Any]:
            centred = inputs - mean
            of_beta = tf.reduce_sum(upstream, axes)
            of_gamma = tf.reduce_sum(upstream * centred, axes) * inverse
            first, second = _sum_over_replicas([of_beta, of_gamma], found)
            share = part / count  # of one value in the statistics
            slope = scale * second * inverse * share
            of_inputs = upstream * scale - centred * slope - scale * first * share
            return of_inputs, of_gamma, of_beta

        return (output, mean, variance), gradient

    output, mean, variance = compute(inputs, tf.identity(gamma), tf.identity(beta))
    return output, tf.stop_gradient(mean), tf.stop_gradient(variance)


def _moments(inputs: Any, axes: list[int], part: Any, found: Pass) -> tuple[Any, Any]:
    mean = tf.reduce_mean(inputs, axes)
    variance = tf.reduce_mean(tf.math.squared_difference(inputs, mean), axes)
    if found.all_reduce is None:
        return mean, variance
    # in double precision: the difference of two large squares may be a small variance
    wide, weight = tf.cast(mean, tf.float64), tf.cast(part, tf.float64)
    square = tf.cast(variance, tf.float64) + tf.square(wide)
    total, squares = _sum_over_replicas([wide * weight, square * weight], found)
    variance = tf.maximum(squares - tf.square(total), 0)
    return tf.cast(total, inputs.dtype), tf.cast(variance, inputs.dtype)


def _sum_over_replicas(values: list[Any], found: Pass) -> list[Any]:
    if found.all_reduce is None:
        return values
    summed: list[Any] = tf.split(found.all_reduce(tf.concat(values, axis=0)), len(values))
    return summed
