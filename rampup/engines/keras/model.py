"""A task's model as the engine trains it: built in the strategy's scope, with loss, optimizer and
metrics.

engine.py builds a CompiledModel once. The engine calls the model, its loss, its optimizer and its
metrics itself, and nothing of `model.fit`: what depends on the rest of it would be dropped
silently, so it is refused in one line before the first step. It never takes a step.
"""

import copy
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from rampup.core.engines.base import find_version
from rampup.core.settings import Settings
from rampup.engines import parts
from rampup.engines.keras.setup import convert, seed_everything, tf, tf_keras
from rampup.engines.keras.task import Task, optimizer_of
from rampup.engines.keras.world import World
from rampup.errors import RampupError

PerSample = Callable[[Any, Any], Any]
"""A function of (y, predicted) that returns the loss of each sample."""
OWN_LOOP = "run it as a script: rampup run -- python train.py"
PARTS_OF_FIT = ("train_step", "test_step", "compute_loss", "compute_metrics")
"""Methods that `fit` calls and the engine does not."""


class CompiledModel:
    """The parts of a compiled model."""

    def __init__(self, task: Task, world: World) -> None:
        settings = task.settings
        seed_everything(settings.seed)
        with world.strategy.scope():
            self.model = task.model()
            check_model(self.model, task.origin)
            given = _compile_settings(self.model, task)
            rule = given.get("optimizer") or optimizer_of(settings)
            self.optimizer: Any = tf_keras.optimizers.get(rule)
            check_compile_settings(self.model, given, self.optimizer, settings, task.origin)
            self.optimizer.build(self.model.trainable_variables)
            self.extra = list(task.extra_variables())
            """Variables that belong to the training and not to the model."""
        own = has_own_schedule(self.optimizer)
        self.base_rate = None if own else float(self.optimizer.learning_rate.numpy())
        """The rate before our schedule; None if the optimizer has its own schedule."""
        world.broadcast([*self.model.variables, *self.optimizer.variables, *self.extra])
        self.per_sample = build_loss(given.get("loss"))
        metrics = tf.nest.flatten(given.get("metrics") or [])
        self._metrics = [each for each in metrics if each is not None]
        seed_everything(parts.rank_seed(settings.seed, world.rank))

    def metrics(self, y: Any, predicted: Any) -> list[tf_keras.metrics.Metric]:
        """Build the metrics that were given to compile, outside of any strategy."""
        return [build_metric(each, y, predicted) for each in self._metrics]


def _compile_settings(model: Any, task: Task) -> Mapping[str, Any]:
    if getattr(model, "optimizer", None) is not None:
        found: Mapping[str, Any] = model._compile_config.config
        return found
    return task.compile_settings()


# what is refused ----------------------------------------------------------------------------------


def check_model(model: Any, origin: str) -> None:
    """Refuse what is not a Keras model, or not one that the engine can train."""
    if not isinstance(model, tf_keras.Model):
        module = type(model).__module__
        if module.startswith("keras."):
            what = "Keras 3, which does not train on several workers"
            if str(find_version("keras")).startswith("2."):  # beside TensorFlow 2.15
                what = "the package keras, not of tf_keras"
            hint = "import tf_keras as keras, or use tf.keras, which is the same here"
            raise RampupError(f"{origin} made a model of {what}", hint)
        raise RampupError(
            f"{origin} returned {type(model).__name__}, not a Keras model", "return the model"
        )
    if not model.built:
        raise RampupError(
            f"{origin}: the model does not know the shape of its input", "give it an Input layer"
        )
    if len(model.outputs or [None]) != 1:
        raise RampupError(
            f"{origin}: the model has {len(model.outputs)} outputs, the engine trains one", OWN_LOOP
        )
    own = [
        name
        for name in PARTS_OF_FIT
        if getattr(type(model), name) is not getattr(tf_keras.Model, name)
    ]
    if own:
        raise RampupError(
            f"{origin}: the model has its own {own[0]}, which the engine would not call",
            OWN_LOOP,
        )


def check_compile_settings(
    model: Any, given: Mapping[str, Any], optimizer: Any, settings: Settings, origin: str
) -> None:
    """Refuse what the engine would drop or do wrong; `given` is what compile was called with."""
    rule = type(optimizer).__name__
    scaled = "LossScaleOptimizer" in rule or any(
        _policy_of(each) == "mixed_float16" for each in model.submodules
    )
    scaled_rate = settings.get("lr_scaling", "none") != "none"
    scheduled = settings.schedule != "constant" or settings.warmup_steps or scaled_rate
    for found, words, hint in (
        (
            isinstance(optimizer, tf_keras.optimizers.legacy.Optimizer),
            f"optimizers.legacy.{rule} is not one that the engine can train with",
            f"use optimizers.{rule}",
        ),
        (
            scaled,
            "mixed_float16 needs a loss that is scaled, which the engine does not do",
            "mixed_bfloat16 does not",
        ),
        (
            given.get("loss_weights") is not None,
            "loss_weights would be dropped",
            "multiply inside the loss",
        ),
        (
            given.get("weighted_metrics"),
            "weighted_metrics would be dropped",
            "name them in metrics",
        ),
        (
            scheduled and has_own_schedule(optimizer),
            f"schedule={settings.schedule} warmup_steps={settings.warmup_steps} beside the "
            "optimizer's own schedule",
            "leave one of the two out",
        ),
    ):
        if found:
            raise RampupError(f"{origin}: {words}", hint)


def has_own_schedule(optimizer: Any) -> bool:
    rate = getattr(optimizer, "_learning_rate", None)
    return isinstance(rate, tf_keras.optimizers.schedules.LearningRateSchedule)


def _policy_of(module: Any) -> str:
    return str(getattr(getattr(module, "dtype_policy", None), "name", ""))


# loss and metrics ---------------------------------------------------------------------------------


def match_labels(y: Any, predicted: Any) -> Any:
    """Return y in the shape and type of the predictions, as Keras does for losses and metrics.

    (batch,) beside (batch, 1) would become (batch, batch).
    """
    ranks = y.shape.rank, predicted.shape.rank
    if ranks == (1, 2) or (
        None not in ranks and ranks[1] == ranks[0] + 1 and predicted.shape[-1] == 1
    ):
        y = tf.expand_dims(y, -1)
    both = y.dtype, predicted.dtype
    alike = all(each.is_floating for each in both) or all(each.is_integer for each in both)
    return tf.cast(y, predicted.dtype) if alike else y


def build_loss(loss: Any) -> PerSample:
    """Return the loss of each sample: the engine itself weighs the samples and adds up.

    Keras's functions give one number per sample by themselves, its objects when they do not reduce.
    """
    known = tf_keras.losses.get(loss) if loss is not None else None
    if known is None or isinstance(loss, dict | list | tuple):
        raise RampupError(
            f"loss={loss!r} is not one that the engine can train with", "name one loss of Keras"
        )
    if isinstance(known, tf_keras.losses.Loss):
        if known.reduction == tf_keras.losses.Reduction.SUM:
            raise RampupError(
                f"loss {known.name} has reduction='sum', and the engine takes the mean over the "
                "samples",
                "leave the reduction out, and multiply the learning rate by the batch size",
            )
        # not by get_config, which many classes of users do not have
        known = copy.copy(known)
        known.reduction = tf_keras.losses.Reduction.NONE

    def of_each(y: Any, predicted: Any) -> Any:
        check_prediction(predicted)
        found = tf.convert_to_tensor(convert(known)(match_labels(y, predicted), predicted))
        if found.shape.rank == 0:
            message = f"loss {_loss_name(known)} returns one number for the whole batch"
            raise RampupError(message, "return one number per sample: tf.reduce_mean(..., axis=-1)")
        if found.shape.rank == 1:
            return found
        return tf.reduce_mean(tf.reshape(found, [tf.shape(found)[0], -1]), axis=1)

    return of_each


def check_prediction(predicted: Any) -> None:
    """Refuse several outputs, and an output with a mask."""
    if tf.nest.is_nested(predicted):
        raise RampupError(
            f"the model returns {len(predicted)} outputs, the engine trains one", OWN_LOOP
        )
    if getattr(predicted, "_keras_mask", None) is not None:
        raise RampupError(
            "the model's output has a mask (mask_zero, Masking), which the loss would not see",
            OWN_LOOP,
        )


def _loss_name(known: Any) -> str:
    return str(getattr(known, "name", None) or getattr(known, "__name__", type(known).__name__))


def build_metric(given: Any, y: Any, predicted: Any) -> tf_keras.metrics.Metric:
    """Build a metric that was given to compile, outside of any strategy: each rank counts alone."""
    if isinstance(given, tf_keras.metrics.Metric):
        return _rebuild(given)
    if given in ("accuracy", "acc"):
        return _accuracy(y, predicted)
    found = tf_keras.metrics.get(given)
    if isinstance(found, tf_keras.metrics.Metric):
        return found
    name = given if isinstance(given, str) else found.__name__
    return tf_keras.metrics.MeanMetricWrapper(found, name=name)


def _rebuild(given: tf_keras.metrics.Metric) -> tf_keras.metrics.Metric:
    """Build the same metric again, because the given one may have its state in the strategy.

    An object does not know what it was made with, so its get_config() must name all arguments.
    """
    kind, config = type(given), given.get_config()
    if kind.__module__.startswith("tf_keras."):
        return kind.from_config(config)
    _, *parameters = inspect.signature(kind.__init__).parameters.values()
    named = [
        each.name for each in parameters if each.kind not in (each.VAR_KEYWORD, each.VAR_POSITIONAL)
    ]
    lost = [name for name in named if name not in (*config, "name", "dtype")]
    if lost:
        config_name = f"get_config() of {kind.__name__}"
        message = f"metric {given.name}: {config_name} does not return its argument {lost[0]!r}"
        raise RampupError(
            message, f"add it: return {{**super().get_config(), {lost[0]!r}: self.{lost[0]}}}"
        )
    takes_any = any(each.kind == each.VAR_KEYWORD for each in parameters)
    # by the class itself
    fixed = () if takes_any else tuple(name for name in ("name", "dtype") if name not in named)
    return kind.from_config({name: value for name, value in config.items() if name not in fixed})


def _accuracy(y: Any, predicted: Any) -> tf_keras.metrics.Metric:
    """Choose the metric that "accuracy" means for these shapes, as Keras does."""
    if predicted.shape[-1] == 1:
        return tf_keras.metrics.BinaryAccuracy(name="accuracy")
    if y.shape.rank == predicted.shape.rank and y.shape[-1] == predicted.shape[-1]:
        return tf_keras.metrics.CategoricalAccuracy(name="accuracy")
    return tf_keras.metrics.SparseCategoricalAccuracy(name="accuracy")
