"""Layers of Keras that normalise over the batch, and how batches are cut for a model with one.

engine.py calls `build_cut` once, before the first step. Over one value BatchNormalization fails
silently: its variance is 0, its output a constant, and its moving variance shrinks. Whether one
sample is one value depends on what reaches the layer, and whether it normalises at all on how it is
called, so the training step's graph is built once more. It is never run.
"""

import inspect
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from rampup.core.settings import Settings
from rampup.engines.keras.model import CompiledModel
from rampup.engines.keras.setup import tf, tf_keras
from rampup.engines.keras.task import Data
from rampup.engines.keras.world import World
from rampup.engines.pieces import Cut, avoid_lone_samples
from rampup.errors import RampupError

KINDS = (
    tf_keras.layers.BatchNormalization,
    tf_keras.layers.experimental.SyncBatchNormalization,
)


def build_cut(
    compiled: CompiledModel, data: Data, settings: Settings, world: World, is_new: bool
) -> Cut:
    """Return how the batches of a run are cut, or refuse batches that the model can't train on.

    A run that has taken steps is not refused: Keras itself would continue.
    """
    find_layer = partial(find_lone_layer, compiled.model, data, world)
    cut = Cut(world.replicas, kind="rank" if world.local_replicas == 1 else "device")
    try:
        return avoid_lone_samples(cut, len(data), settings, find_layer, is_new)
    except RampupError:
        world.final_barrier()  # together: else one would take the error of another for its own
        raise


def find_lone_layer(model: Any, data: Data, world: World) -> str:
    """Return the first layer that gets one value of each channel from one sample, or nothing."""
    layers = [each for each in model.submodules if _normalises(each, world)]
    if not layers:
        return ""
    found: list[str] = []
    x, _ = data.batch(tf.constant([0], tf.int64))

    def train() -> None:
        world.run(lambda given: model(given, training=True), *[(x,)] * world.local_replicas)

    with ExitStack() as stack:
        for layer in layers:
            stack.enter_context(_watch(layer, found))
        tf.function(train).get_concrete_function()
    return f"layer {found[0]} (BatchNormalization)" if found else ""


def _normalises(layer: Any, world: World) -> bool:
    """Return whether a layer may normalise over a replica's own piece.

    A frozen one uses its moving statistics.
    """
    if not isinstance(layer, KINDS) or not layer.trainable:
        return False
    return world.replicas == 1 or not getattr(layer, "synchronized", False)


@contextmanager
def _watch(layer: Any, found: list[str]) -> Iterator[None]:
    """Add the layer's name where it is called to normalise over one value of each channel."""
    usual = layer.call
    signature = inspect.signature(usual)

    def call(*arguments: Any, **named: Any) -> Any:
        given = signature.bind(*arguments, **named).arguments
        training = given.get("training")
        if training is None or tf.is_tensor(training) or training:
            _note(layer, given["inputs"].shape, found)
        return usual(*arguments, **named)

    layer.call = call
    try:
        yield
    finally:
        del layer.call


def _note(layer: Any, shape: Any, found: list[str]) -> None:
    channels = {axis % shape.rank for axis in layer.axis}
    others = [size for axis, size in enumerate(shape) if axis not in channels]
    if all(size == 1 for size in others):  # a size that is not known is larger
        found.append(layer.name)
