"""The questions recipe with plain `model.fit` on the engine's own tf.data pipeline: prints `epoch_s
SECONDS`.

python benchmarks/keras_fit.py ROWS EPOCHS
"""

import statistics
import sys
import time
from typing import Any

from benchmarks.keras_questions import recipe, settings_of
from rampup.engines.keras import data as keras_data
from rampup.engines.keras.setup import tf, tf_keras
from rampup.engines.keras.task import optimizer_of
from rampup.engines.keras.world import World
from rampup.runtime.context import RankContext


def main(rows: int, epochs: int) -> None:
    settings, context = settings_of(rows), RankContext(threads=1)
    as_users_run_it(threads=1)
    task, world = recipe(settings), World(context)
    train, _ = task.data()
    model = task.model()
    model.compile(optimizer=optimizer_of(settings), **{**task.compile_settings(), "metrics": []})
    steps = -(-len(train) // settings.batch_size)
    batches = keras_data.training_batches(
        train, settings.batch_size, settings.seed, 0, steps * epochs, world
    )
    usual = model.train_step
    # The pipeline has a piece for each replica. Taken apart here it costs nothing, and in a `.map`
    # a few percent.
    model.train_step = lambda pieces: usual(pieces[0][:2])
    clock = Clock()
    model.fit(batches, steps_per_epoch=steps, epochs=epochs, verbose=0, callbacks=[clock])
    print("epoch_s", statistics.median(clock.seconds[1:]))


def as_users_run_it(threads: int) -> None:
    """As many threads as the engine has, and nothing else that it sets: above all no exact
    arithmetic, which costs."""
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)


class Clock(tf_keras.callbacks.Callback):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.began = time.perf_counter()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.seconds.append(time.perf_counter() - self.began)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
