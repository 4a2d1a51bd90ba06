"""A task's model as the engine trains it: made in the strategy's scope, with its loss, optimizer and metrics.

What a model was compiled with is taken as it is. The loss becomes one number per sample, because the engine itself
weighs and adds up; metrics are made anew outside of the strategy, where each rank counts for itself.
"""

from collections.abc import Callable, Mapping
from typing import Any

from rampup.engines import keras_seed, keras_version
from rampup.engines.keras_setup import rewritten, tf, tf_keras
from rampup.engines.keras_task import Task, optimizer_of
from rampup.engines.keras_world import World
from rampup.errors import RampupError

PerSample = Callable[[Any, Any], Any]
"""(y, predicted) -> the loss of each sample."""


class Compiled:
    """The parts of a compiled model."""

    def __init__(self, task: Task, world: World) -> None:
        settings = task.settings
        keras_seed.start(settings.seed)
        with world.strategy.scope():
            self.model = task.model()
            _refuse_what_is_no_model(self.model, task)
            given = _compile_settings(self.model, task)
            self.optimizer: Any = tf_keras.optimizers.get(given.get("optimizer") or optimizer_of(settings))
            self.optimizer.build(self.model.trainable_variables)
        self.base_rate = _base_rate(self.optimizer)
        """Before any schedule of ours; None where the optimizer has a schedule of its own."""
        world.share([*self.model.variables, *self.optimizer.variables])
        self.per_sample = per_sample(given.get("loss"))
        self._metrics = [each for each in tf.nest.flatten(given.get("metrics") or []) if each is not None]
        keras_seed.start(keras_seed.of_rank(settings.seed, world.rank))

    def metrics(self, y: Any, predicted: Any) -> list[tf_keras.metrics.Metric]:
        """As they were given to compile, and knowing nothing of a strategy."""
        return [_metric(each, y, predicted) for each in self._metrics]


def _refuse_what_is_no_model(model: Any, task: Task) -> None:
    origin = task.origin
    if not isinstance(model, tf_keras.Model):
        module = type(model).__module__
        if module.startswith("keras."):
            old = str(keras_version.of("keras")).startswith("2.")  # beside TensorFlow 2.15
            what = "the package keras, not of tf_keras" if old else "Keras 3, which does not train on several workers"
            hint = "import tf_keras as keras, or use tf.keras, which is the same here"
            raise RampupError(f"{origin} made a model of {what}", hint)
        raise RampupError(f"{origin} returned {type(model).__name__}, not a Keras model", "return the model")
    if not model.built:
        raise RampupError(f"{origin}: the model does not know the shape of its input", "give it an Input layer")
    if len(model.outputs or [None]) != 1:
        raise RampupError(f"{origin}: the model has {len(model.outputs)} outputs, the engine trains one", OWN_LOOP)
    if type(model).train_step is not tf_keras.Model.train_step:
        raise RampupError(f"{origin}: the model has a train_step of its own, which the engine would not call", OWN_LOOP)


OWN_LOOP = "run it as a script: rampup run -- python train.py"


def _base_rate(optimizer: Any) -> float | None:
    own = isinstance(optimizer._learning_rate, tf_keras.optimizers.schedules.LearningRateSchedule)
    return None if own else float(optimizer.learning_rate.numpy())


def _compile_settings(model: Any, task: Task) -> Mapping[str, Any]:
    if getattr(model, "optimizer", None) is not None:
        found: Mapping[str, Any] = model._compile_config.config
        return found
    return task.compile_settings()


def per_sample(loss: Any) -> PerSample:
    """Keras's functions give one number for each sample by themselves, its objects when they do not reduce."""
    known = tf_keras.losses.get(loss) if loss is not None else None
    if known is None or isinstance(loss, dict | list | tuple):
        raise RampupError(f"loss={loss!r} is not one that the engine can train with", "name one loss of Keras")
    if isinstance(known, tf_keras.losses.Loss):
        known = type(known).from_config({**known.get_config(), "reduction": tf_keras.losses.Reduction.NONE})

    def of_each(y: Any, predicted: Any) -> Any:
        if y.shape.rank is not None and predicted.shape.rank == y.shape.rank + 1 and predicted.shape[-1] == 1:
            y = tf.expand_dims(y, -1)  # (batch,) beside (batch, 1) would become (batch, batch)
        found = rewritten(known)(y, predicted)
        return tf.reduce_mean(tf.reshape(found, [tf.shape(found)[0], -1]), axis=1) if found.shape.rank != 1 else found

    return of_each


def _metric(given: Any, y: Any, predicted: Any) -> tf_keras.metrics.Metric:
    if isinstance(given, tf_keras.metrics.Metric):
        return type(given).from_config(given.get_config())
    if given in ("accuracy", "acc"):
        return _accuracy(y, predicted)
    found = tf_keras.metrics.get(given)
    if isinstance(found, tf_keras.metrics.Metric):
        return found
    return tf_keras.metrics.MeanMetricWrapper(found, name=given if isinstance(given, str) else found.__name__)


def _accuracy(y: Any, predicted: Any) -> tf_keras.metrics.Metric:
    """Which one "accuracy" means follows from the shapes, as in Keras."""
    if predicted.shape[-1] == 1:
        return tf_keras.metrics.BinaryAccuracy(name="accuracy")
    if y.shape.rank == predicted.shape.rank and y.shape[-1] == predicted.shape[-1]:
        return tf_keras.metrics.CategoricalAccuracy(name="accuracy")
    return tf_keras.metrics.SparseCategoricalAccuracy(name="accuracy")
