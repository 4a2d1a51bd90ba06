"""A task's model as the engine trains it: made in the strategy's scope, with its loss, optimizer
and metrics.

What a model was compiled with is taken as it is, or refused. The engine calls these parts itself,
and not `model.fit`.
"""

from collections.abc import Mapping
from typing import Any

from rampup.engines.keras import seed as keras_seed
from rampup.engines.keras.refusals import (
    has_own_schedule,
    refuse_what_is_no_model,
    refuse_what_would_be_dropped,
)
from rampup.engines.keras.scores import metric_of, per_sample
from rampup.engines.keras.setup import tf, tf_keras
from rampup.engines.keras.task import Task, optimizer_of
from rampup.engines.keras.world import World


class Compiled:
    """The parts of a compiled model."""

    def __init__(self, task: Task, world: World) -> None:
        settings = task.settings
        keras_seed.start(settings.seed)
        with world.strategy.scope():
            self.model = task.model()
            refuse_what_is_no_model(self.model, task.origin)
            given = _compile_settings(self.model, task)
            self.optimizer: Any = tf_keras.optimizers.get(
                given.get("optimizer") or optimizer_of(settings)
            )
            refuse_what_would_be_dropped(self.model, given, self.optimizer, settings, task.origin)
            self.optimizer.build(self.model.trainable_variables)
        own = has_own_schedule(self.optimizer)
        self.base_rate = None if own else float(self.optimizer.learning_rate.numpy())
        """Before any schedule of ours; None where the optimizer has a schedule of its own."""
        world.share([*self.model.variables, *self.optimizer.variables])
        self.per_sample = per_sample(given.get("loss"))
        self._metrics = [
            each for each in tf.nest.flatten(given.get("metrics") or []) if each is not None
        ]
        keras_seed.start(keras_seed.of_rank(settings.seed, world.rank))

    def metrics(self, y: Any, predicted: Any) -> list[tf_keras.metrics.Metric]:
        """As they were given to compile, and knowing nothing of a strategy."""
        return [metric_of(each, y, predicted) for each in self._metrics]


def _compile_settings(model: Any, task: Task) -> Mapping[str, Any]:
    if getattr(model, "optimizer", None) is not None:
        found: Mapping[str, Any] = model._compile_config.config
        return found
    return task.compile_settings()
