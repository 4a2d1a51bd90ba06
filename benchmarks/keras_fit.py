"""The questions recipe with plain `model.fit` on the engine's own tf.data pipeline: prints `epoch_s SECONDS`.

python benchmarks/keras_fit.py ROWS EPOCHS
"""

import statistics
import sys
import time
from typing import Any

from benchmarks.keras_questions import recipe, settings_of
from rampup.engines import keras_data, keras_setup
from rampup.engines.keras_task import optimizer_of
from rampup.engines.keras_world import World
from rampup.runtime.context import RankContext


def main(rows: int, epochs: int) -> None:
    settings, context = settings_of(rows), RankContext(threads=1)
    keras_setup.prepare(context, 0, None, None, 1)
    task, world = recipe(settings), World(context)
    train, _ = task.data()
    model = task.model()
    model.compile(optimizer=optimizer_of(settings), **{**task.compile_settings(), "metrics": []})
    steps = -(-len(train) // settings.batch_size)
    batches = keras_data.training(train, settings.batch_size, settings.seed, 0, steps * epochs, world)
    batches = batches.map(lambda piece: piece[:2])
    clock = Clock()
    model.fit(batches, steps_per_epoch=steps, epochs=epochs, verbose=0, callbacks=[clock])
    print("epoch_s", statistics.median(clock.seconds[1:]))


class Clock(keras_setup.tf_keras.callbacks.Callback):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.began = time.perf_counter()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.seconds.append(time.perf_counter() - self.began)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
