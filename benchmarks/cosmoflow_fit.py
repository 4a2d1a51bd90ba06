"""The cosmoflow recipe with plain `model.fit` on the engine's own pipeline: prints `epoch_s SECONDS`.

python benchmarks/cosmoflow_fit.py FOLDER EPOCHS
"""

import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from benchmarks.cosmoflow import SETTINGS
from benchmarks.keras_fit import Clock, as_users_run_it
from rampup.config.recipes import load
from rampup.core.settings import Settings
from rampup.engines.keras.streams import open_streams
from rampup.engines.keras.task import optimizer_of
from rampup.engines.keras.world import World
from rampup.engines.pieces import Cut
from rampup.recipes.cosmoflow.train import CosmoFlow
from rampup.runtime.context import RankContext


def main(folder: str, epochs: int) -> None:
    recipe = load("cosmoflow", Path())
    defaults = {name: setting.default for name, setting in recipe.settings.items()}
    settings = Settings(defaults | SETTINGS | {"data": folder, "epochs": epochs})
    as_users_run_it(threads=1)
    task = CosmoFlow(settings)
    context = RankContext(threads=1)
    job: Any = SimpleNamespace(settings=settings, context=context, leaving=[], local_disk="")
    train, _ = open_streams(*task.data(), job, lambda: False)
    model = task.model()
    model.compile(optimizer=optimizer_of(settings), loss=settings.loss)
    steps = -(-len(train) // settings.batch_size)
    world = World(context)
    given = (settings.batch_size, settings.seed, 0, steps * epochs, world, Cut(1))
    clock = Clock()
    batches = plain(train.training_batches(*given))
    model.fit(batches, steps_per_epoch=steps, epochs=epochs, verbose=0, callbacks=[clock])
    print("epoch_s", statistics.median(clock.seconds[1:]))


def plain(stream: Any) -> Iterator[Any]:
    """Yield the samples of the only replica, without weights."""
    for pieces in stream:
        yield pieces[0][:2]


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
