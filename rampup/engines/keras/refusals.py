"""Models that the engine would train wrongly, or not as their author meant: refused in one line,
before the first step.

keras_model.py asks. The engine calls a model, its loss, its optimizer and its metrics, and nothing
of `model.fit`; what hangs on the rest of it would be dropped without a word.
"""

from collections.abc import Mapping
from typing import Any

from rampup.core.engines.base import find_version
from rampup.core.settings import Settings
from rampup.engines.keras.scores import OWN_LOOP
from rampup.engines.keras.setup import tf_keras
from rampup.errors import RampupError

PARTS_OF_FIT = ("train_step", "test_step", "compute_loss", "compute_metrics")
"""Methods that `fit` calls and the engine does not."""


def refuse_what_is_no_model(model: Any, origin: str) -> None:
    if not isinstance(model, tf_keras.Model):
        module = type(model).__module__
        if module.startswith("keras."):
            old = str(find_version("keras")).startswith("2.")  # beside TensorFlow 2.15
            what = (
                "the package keras, not of tf_keras"
                if old
                else "Keras 3, which does not train on several workers"
            )
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
            f"{origin}: the model has a {own[0]} of its own, which the engine would not call",
            OWN_LOOP,
        )


def refuse_what_would_be_dropped(
    model: Any, given: Mapping[str, Any], optimizer: Any, settings: Settings, origin: str
) -> None:
    """`given` is what the model was compiled with."""
    rule = type(optimizer).__name__
    scaled = "LossScaleOptimizer" in rule or any(
        _policy_of(each) == "mixed_float16" for each in model.submodules
    )
    scheduled = settings.schedule != "constant" or settings.warmup_steps
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
            "multiply inside of the loss",
        ),
        (
            given.get("weighted_metrics"),
            "weighted_metrics would be dropped",
            "name them in metrics",
        ),
        (
            scheduled and has_own_schedule(optimizer),
            f"schedule={settings.schedule} warmup_steps={settings.warmup_steps} beside the optimizer's own schedule",
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
