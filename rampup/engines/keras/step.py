"""One training step as one tf.function: forward, backward, the sum over all replicas, the update.

With several replicas all gradients travel as one flat vector, and behind them the loss and the
wishes of the ranks to stop or to save: one collective per step, whose sums come in the same order
in every run.
"""

from typing import Any

import numpy as np

from rampup.engines.keras.loss import RunningLoss
from rampup.engines.keras.model import Compiled
from rampup.engines.keras.setup import tf
from rampup.engines.keras.world import World


class Step:
    """`take` is called once for every step. The batch is fetched inside of it: that is quicker than
    a loop in Python over the pipeline, and so waiting for data counts as computing."""

    def __init__(
        self, compiled: Compiled, loss: RunningLoss, world: World, clip: float | None, batches: Any
    ) -> None:
        self._compiled, self._loss, self._world, self._clip = compiled, loss, world, clip
        self._batches = iter(batches)
        self._function = tf.function(self._take, input_signature=[tf.TensorSpec([4], tf.float32)])

    def take(self, samples: int, rate: float, wish_stop: bool, wish_save: bool) -> Any:
        """One step over `samples` of all ranks; a tensor that tells how many ranks wish to stop,
        and to save."""
        return self._function(np.array([samples, rate, wish_stop, wish_save], np.float32))

    def _take(self, given: Any) -> Any:
        samples, rate, wishes = given[0], given[1], given[2:]
        if self._compiled.base_rate is not None:
            self._compiled.optimizer.learning_rate.assign(rate)
        told = self._world.run(
            self._in_replica, *((*piece, wishes) for piece in next(self._batches))
        )[0]
        self._loss.add(told[0], samples)
        return told[1:]

    def _in_replica(self, x: Any, y: Any, weight: Any, wishes: Any) -> Any:
        model, replicas = self._compiled.model, self._world.replicas
        with tf.GradientTape() as tape:
            losses = self._compiled.per_sample(y, model(x, training=True))
            loss = tf.reduce_sum(losses) * tf.cast(weight, losses.dtype)
            for each in model.losses:  # of regularisers
                loss += tf.cast(each, loss.dtype) / replicas
        variables = model.trainable_variables
        pairs = [
            pair
            for pair in zip(tape.gradient(loss, variables), variables, strict=True)
            if pair[0] is not None
        ]
        gradients = [_dense(*pair) if replicas > 1 else pair[0] for pair in pairs]
        told = tf.concat([[tf.cast(loss, tf.float32)], wishes], axis=0)
        if replicas > 1:
            gradients, told = self._added_up(gradients, told)
        if self._clip is not None:
            gradients, _ = tf.clip_by_global_norm(gradients, self._clip)
        self._compiled.optimizer.apply_gradients(
            zip(gradients, [variable for _, variable in pairs], strict=True),
            skip_gradients_aggregation=True,
        )
        return told

    def _added_up(self, gradients: list[Any], told: Any) -> tuple[list[Any], Any]:
        kind, given = gradients[0].dtype, [*gradients, told]
        flat = tf.concat([tf.reshape(tf.cast(each, kind), [-1]) for each in given], axis=0)
        parts = tf.split(self._world.add_up(flat), [each.shape.num_elements() for each in given])
        *found, heard = [
            tf.reshape(tf.cast(part, each.dtype), each.shape)
            for part, each in zip(parts, given, strict=True)
        ]
        return found, heard


def _dense(gradient: Any, variable: Any) -> Any:
    """Of the variable's shape, which a gradient out of a SavedModel does not tell."""
    return tf.ensure_shape(tf.convert_to_tensor(gradient), variable.shape)
