"""What a recipe of the keras engine provides: data, a model, and what `model.compile` takes.

A recipe subclasses Task in its train.py, and the engine does the rest. Everything in here is plain
Keras 2 (`tf_keras`) and knows nothing about ranks or strategies: the engine builds the model inside
the strategy's scope and cuts the batches.
"""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from rampup.core.mlperf import Benchmark
from rampup.core.settings import Settings
from rampup.data.reader import SampleReader
from rampup.engines.keras.setup import tf, tf_keras
from rampup.errors import RampupError


class Data(Protocol):
    """Samples that are read in whole batches."""

    def __len__(self) -> int: ...

    def batch(self, indices: Any) -> tuple[Any, Any]:
        """Return the inputs of the model and the expected outputs at these positions.

        `indices` is an integer tensor. It is called inside a tf.data pipeline, so use
        TensorFlow's own operations.
        """


class ArrayData:
    """Arrays in memory with one row per sample.

    `x` and `y` may also be dicts, tuples or lists of arrays.
    """

    def __init__(self, x: Any, y: Any) -> None:
        x, y = (np.asarray(part) if _is_rows(part) else part for part in (x, y))
        arrays = [np.asarray(each) for each in tf.nest.flatten((x, y))]
        sizes = {len(array) for array in arrays}
        if len(sizes) != 1:
            lengths = [len(array) for array in arrays]
            raise RampupError(
                f"arrays of different length can't form one data set: {lengths}",
                "one row per sample",
            )
        self._size = sizes.pop()
        with tf.device("CPU:0"):
            self._x, self._y = tf.nest.map_structure(tf.convert_to_tensor, (x, y))

    def __len__(self) -> int:
        return self._size

    def batch(self, indices: Any) -> tuple[Any, Any]:
        found: tuple[Any, Any] = tf.nest.map_structure(
            lambda rows: tf.gather(rows, indices), (self._x, self._y)
        )
        return found


def _is_rows(part: Any) -> bool:
    """Return whether a list has rows of plain Python, not an array for each input of a model."""
    return isinstance(part, list) and not all(hasattr(each, "shape") for each in part)


class Task:
    """What to train. `settings` holds the engine's keys and those of the recipe."""

    outputs: tuple[str, ...] = ()
    """The names of the numbers that the model predicts. Where there are some, the report shows what
    it predicts against what is true."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    @property
    def origin(self) -> str:
        """Return how messages name what builds the model."""
        return f"model() of {type(self).__name__}"

    def data(self) -> tuple[Data | SampleReader, Data | SampleReader | None]:
        """Return training and validation data, the same on every rank.

        Of a SampleReader the next batches are read while a step computes; its last field is what
        the model is to predict. Without validation data, set monitor=train_loss.
        """
        raise NotImplementedError

    def model(self) -> tf_keras.Model:
        """Return a model with one output. A compiled one needs no `compile_settings`."""
        raise NotImplementedError

    def compile_settings(self) -> Mapping[str, Any]:
        """Return the arguments of `model.compile`: loss, metrics, and the optimizer if it is not
        that of the settings."""
        raise NotImplementedError

    def benchmark(self, optimizer: tf_keras.optimizers.Optimizer, steps: int) -> Benchmark | None:
        """Return the benchmark of MLPerf that this is, if it is one: then its log is written.

        `steps` is how long the schedule of the learning rate is.
        """
        return None

    def end(self, model: tf_keras.Model) -> Mapping[str, Any]:
        """Return facts to print and to keep, such as a prediction.

        Rank 0 calls it after the last step.
        """
        return {}


def optimizer_of(settings: Settings) -> tf_keras.optimizers.Optimizer:
    """Build the optimizer of the settings; weight decay is always decoupled, as in AdamW."""
    decay = settings.weight_decay or None
    if settings.optimizer == "sgd":
        return tf_keras.optimizers.SGD(settings.lr, momentum=settings.momentum, weight_decay=decay)
    rule = tf_keras.optimizers.AdamW if settings.optimizer == "adamw" else tf_keras.optimizers.Adam
    return rule(settings.lr, weight_decay=decay)
