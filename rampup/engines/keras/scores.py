"""What a model was compiled with to be measured by: its loss as one number per sample, its metrics
made anew.

keras_model.py asks for both. The engine itself weighs the samples and adds up, so a loss must not
reduce; metrics live outside of the strategy, where each rank counts for itself. What can't be kept
as it was given is refused here.
"""

import copy
import inspect
from collections.abc import Callable
from typing import Any

from rampup.engines.keras.setup import rewritten, tf, tf_keras
from rampup.errors import RampupError

PerSample = Callable[[Any, Any], Any]
"""(y, predicted) -> the loss of each sample."""
OWN_LOOP = "run it as a script: rampup run -- python train.py"


def matched(y: Any, predicted: Any) -> Any:
    """y in the shape and the type of what was predicted, as Keras gives both to losses and metrics.

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


def per_sample(loss: Any) -> PerSample:
    """Keras's functions give one number for each sample by themselves, its objects when they do not
    reduce."""
    known = tf_keras.losses.get(loss) if loss is not None else None
    if known is None or isinstance(loss, dict | list | tuple):
        raise RampupError(
            f"loss={loss!r} is not one that the engine can train with", "name one loss of Keras"
        )
    if isinstance(known, tf_keras.losses.Loss):
        if known.reduction == tf_keras.losses.Reduction.SUM:
            message = f"loss {known.name} has reduction='sum', and the engine takes the mean over the samples"
            raise RampupError(
                message, "leave the reduction out, and multiply the learning rate by the batch size"
            )
        # not by get_config, which many a class of the user's own does not have
        known = copy.copy(known)
        known.reduction = tf_keras.losses.Reduction.NONE

    def of_each(y: Any, predicted: Any) -> Any:
        refuse_what_is_no_prediction(predicted)
        found = tf.convert_to_tensor(rewritten(known)(matched(y, predicted), predicted))
        if found.shape.rank == 0:
            message = f"loss {_name_of(known)} returns one number for the whole batch"
            raise RampupError(message, "return one number per sample: tf.reduce_mean(..., axis=-1)")
        return (
            tf.reduce_mean(tf.reshape(found, [tf.shape(found)[0], -1]), axis=1)
            if found.shape.rank != 1
            else found
        )

    return of_each


def refuse_what_is_no_prediction(predicted: Any) -> None:
    if tf.nest.is_nested(predicted):
        raise RampupError(
            f"the model returns {len(predicted)} outputs, the engine trains one", OWN_LOOP
        )
    if getattr(predicted, "_keras_mask", None) is not None:
        raise RampupError(
            "the model's output has a mask (mask_zero, Masking), which the loss would not see",
            OWN_LOOP,
        )


def _name_of(known: Any) -> str:
    return str(getattr(known, "name", None) or getattr(known, "__name__", type(known).__name__))


def metric_of(given: Any, y: Any, predicted: Any) -> tf_keras.metrics.Metric:
    """As it was given to compile, and knowing nothing of a strategy."""
    if isinstance(given, tf_keras.metrics.Metric):
        return _made_anew(given)
    if given in ("accuracy", "acc"):
        return _accuracy(y, predicted)
    found = tf_keras.metrics.get(given)
    if isinstance(found, tf_keras.metrics.Metric):
        return found
    return tf_keras.metrics.MeanMetricWrapper(
        found, name=given if isinstance(given, str) else found.__name__
    )


def _made_anew(given: tf_keras.metrics.Metric) -> tf_keras.metrics.Metric:
    """The given one may have its state in the strategy, and an object does not tell what it was
    made with."""
    kind, config = type(given), given.get_config()
    if kind.__module__.startswith("tf_keras."):
        return kind.from_config(config)
    _, *parameters = inspect.signature(kind.__init__).parameters.values()
    named = [
        each.name for each in parameters if each.kind not in (each.VAR_KEYWORD, each.VAR_POSITIONAL)
    ]
    lost = [name for name in named if name not in (*config, "name", "dtype")]
    if lost:
        message = f"metric {given.name}: get_config() of {kind.__name__} does not tell its argument {lost[0]!r}"
        raise RampupError(
            message, f"add it: return {{**super().get_config(), {lost[0]!r}: self.{lost[0]}}}"
        )
    takes_any = any(each.kind == each.VAR_KEYWORD for each in parameters)
    # by the class itself
    fixed = () if takes_any else tuple(name for name in ("name", "dtype") if name not in named)
    return kind.from_config({name: value for name, value in config.items() if name not in fixed})


def _accuracy(y: Any, predicted: Any) -> tf_keras.metrics.Metric:
    """Which one "accuracy" means follows from the shapes, as in Keras."""
    if predicted.shape[-1] == 1:
        return tf_keras.metrics.BinaryAccuracy(name="accuracy")
    if y.shape.rank == predicted.shape.rank and y.shape[-1] == predicted.shape[-1]:
        return tf_keras.metrics.CategoricalAccuracy(name="accuracy")
    return tf_keras.metrics.SparseCategoricalAccuracy(name="accuracy")
