"""What a recipe of the keras engine provides: data, a model, and what `model.compile` takes.

A recipe subclasses Task in its train.py, and the engine does the rest. Everything in here is plain
Keras 2 (`tf_keras`) and knows nothing about ranks or strategies: the engine builds the model inside
the strategy's scope and cuts the batches.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from rampup.core.mlperf import Benchmark
from rampup.core.settings import Settings
from rampup.data.reader import SampleReader
from rampup.engines.clusters import Clustering
from rampup.engines.keras.setup import tf, tf_keras
from rampup.errors import RampupError, undefined

if TYPE_CHECKING:
    from rampup.engines.keras.ranks import Ranks


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

    clustering_metric = ""
    """The name of the metric that counts how well clusters agree with classes, where the task has a
    `clustering`."""

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
        raise undefined(
            self, "data", "return training and validation data; rampup new shows a whole recipe"
        )

    def model(self) -> tf_keras.Model:
        """Return a model with one output. A compiled one needs no `compile_settings`."""
        raise undefined(self, "model", "return a Keras model with one output")

    def compile_settings(self) -> Mapping[str, Any]:
        """Return the arguments of `model.compile`: loss, metrics, and the optimizer if it is not
        that of the settings."""
        raise undefined(
            self, "compile_settings", "return the arguments of model.compile, or a compiled model"
        )

    # work between steps, of which a task needs none ------------------------------------------------

    def extra_variables(self) -> Sequence[tf.Variable]:
        """Return variables that belong to the training and not to the model.

        They have the same values on all ranks, and are part of every checkpoint. Called once, after
        model().
        """
        return ()

    def before_epoch(self, model: tf_keras.Model, epoch: int) -> None:
        """Set what depends on the epoch, such as a weight of the loss: assign it to a variable.

        Epochs count from 1. Called on all ranks before the first step of an epoch, and again where
        a run continues in the middle of one.
        """

    def before_step(self, model: tf_keras.Model, samples: int) -> None:
        """Set what depends on the number of samples so far, those of all epochs and ranks.

        Called on all ranks before each step.
        """

    def after_epoch(self, model: tf_keras.Model, epoch: int, ranks: "Ranks") -> None:
        """Work on the model after the last step of an epoch, such as to fit clusters.

        All ranks call it, and may exchange arrays through `ranks`. The validation and the
        checkpoint of this epoch follow, so a run that continues there does not repeat it. What it
        assigns must be the same on all ranks.
        """

    # what people look at --------------------------------------------------------------------------

    @property
    def switches(self) -> Mapping[int, str]:
        """Return the epochs from which on the training is another one, with a word for each.

        The report marks them.
        """
        return {}

    def clustering(
        self, metrics: Mapping[str, tf_keras.metrics.Metric], truth: Any, predicted: Any
    ) -> Clustering:
        """Return the clusters of a validation, for TensorBoard and the report.

        `metrics` are those of the model by their names, counted over all ranks. `truth` and
        `predicted` are arrays: what the model was to predict and what it predicted for the first
        validation samples. Rank 0 calls it, if a task defines it.
        """
        raise NotImplementedError

    # at the end -----------------------------------------------------------------------------------

    def benchmark(self, optimizer: tf_keras.optimizers.Optimizer, steps: int) -> Benchmark | None:
        """Return the benchmark of MLPerf that this is, if it is one: then its log is written.

        `steps` is how long the schedule of the learning rate is.
        """
        return None

    def results(self, model: tf_keras.Model, ranks: "Ranks") -> Mapping[str, Any]:
        """Return facts to print and to keep, computed by all ranks together.

        All ranks call it after the last step.
        """
        return {}

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
