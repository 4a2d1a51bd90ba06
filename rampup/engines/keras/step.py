"""One training step as one tf.function: forward, backward, the sum over all replicas, the update.

engine.py takes one for every step. With several replicas all gradients travel as one flat vector,
and behind them the loss and the votes of the ranks to stop or to save: one collective per step,
whose sums come in the same order in every run. It never reads a value back.
"""

from typing import Any

import numpy as np

from rampup.engines import parts
from rampup.engines.keras.batch_statistics import Pass, in_pass
from rampup.engines.keras.model import CompiledModel
from rampup.engines.keras.setup import tf
from rampup.engines.keras.world import World


class RunningLoss(parts.RunningLoss):
    """The mean training loss, summed by the training step itself."""

    def __init__(self) -> None:
        self._sum = tf.Variable(0.0, dtype=tf.float64, trainable=False)

    def add(self, loss: Any, samples: Any) -> None:
        """Add to the sum inside of the training step; its caller counts `samples` up."""
        self._sum.assign_add(tf.cast(loss, tf.float64) * tf.cast(samples, tf.float64))

    def _read_sum(self) -> float:
        return float(self._sum.numpy())

    def _write_sum(self, value: float) -> None:
        self._sum.assign(value)


class Step:
    """The training step.

    The batch is fetched inside of it: that is quicker than a loop in Python over the pipeline, and
    so waiting for data counts as computing.
    """

    def __init__(
        self,
        compiled: CompiledModel,
        loss: RunningLoss,
        world: World,
        clip: float | None,
        batches: Any,
    ) -> None:
        self._compiled, self._loss, self._world, self._clip = compiled, loss, world, clip
        self._batches = iter(batches)
        self._function = tf.function(self._take, input_signature=[tf.TensorSpec([4], tf.float32)])

    def take(self, samples: int, rate: float, stop_vote: bool, save_vote: bool) -> Any:
        """Take a step over `samples` of all ranks.

        Returns a tensor with the number of ranks that vote to stop, and to save.
        """
        return self._function(np.array([samples, rate, stop_vote, save_vote], np.float32))

    def fetch(self) -> None:
        """Wait for the batch of the next step, where it is not fetched inside of it."""

    def _take(self, given: Any) -> Any:
        return self._update(given, next(self._batches))

    def _update(self, given: Any, batch: Any) -> Any:
        samples, rate, votes = given[0], given[1], given[2:]
        if self._compiled.base_rate is not None:
            self._compiled.optimizer.learning_rate.assign(rate)
        pieces = [(*piece, votes) for piece in batch]
        extras = self._world.run(self._in_replica, *pieces)[0]
        self._loss.add(extras[0], samples)
        return extras[1:]

    def _in_replica(self, x: Any, y: Any, weight: Any, votes: Any) -> Any:
        model, replicas = self._compiled.model, self._world.replicas
        all_reduce = self._world.all_reduce if replicas > 1 else None
        with tf.GradientTape() as tape, in_pass(Pass(all_reduce, weight)):
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
        extras = tf.concat([[tf.cast(loss, tf.float32)], votes], axis=0)
        if replicas > 1:
            gradients, extras = self._all_reduce(gradients, extras)
        if self._clip is not None:
            gradients, _ = tf.clip_by_global_norm(gradients, self._clip)
        self._compiled.optimizer.apply_gradients(
            zip(gradients, [variable for _, variable in pairs], strict=True),
            skip_gradients_aggregation=True,
        )
        return extras

    def _all_reduce(self, gradients: list[Any], extras: Any) -> tuple[list[Any], Any]:
        kind, given = gradients[0].dtype, [*gradients, extras]
        flat = tf.concat([tf.reshape(tf.cast(each, kind), [-1]) for each in given], axis=0)
        sizes = [each.shape.num_elements() for each in given]
        pieces = tf.split(self._world.all_reduce(flat), sizes)
        *reduced, reduced_extras = [
            tf.reshape(tf.cast(piece, each.dtype), each.shape)
            for piece, each in zip(pieces, given, strict=True)
        ]
        return reduced, reduced_extras


class StreamedStep(Step):
    """The training step on data that is read sample by sample: Python hands each batch over."""

    def __init__(
        self,
        compiled: CompiledModel,
        loss: RunningLoss,
        world: World,
        clip: float | None,
        batches: Any,
    ) -> None:
        super().__init__(compiled, loss, world, clip, batches)
        signature = [tf.TensorSpec([4], tf.float32), batches.element_spec]
        self._function = tf.function(self._update, input_signature=signature)
        self._batch: Any = None

    def fetch(self) -> None:
        self._batch = next(self._batches)

    def take(self, samples: int, rate: float, stop_vote: bool, save_vote: bool) -> Any:
        batch, self._batch = self._batch, None
        given = np.array([samples, rate, stop_vote, save_vote], np.float32)
        return self._function(given, batch)


def _dense(gradient: Any, variable: Any) -> Any:
    """Give a gradient the shape of its variable: one out of a SavedModel does not know it."""
    return tf.ensure_shape(tf.convert_to_tensor(gradient), variable.shape)
