"""One pass over the questions through a tf.data pipeline, and nothing else: prints `epoch_s
SECONDS`.

python benchmarks/keras_pipelines.py ours|document ROWS
"""

import statistics
import sys
from typing import Any

from benchmarks.keras_fit import as_users_run_it
from benchmarks.keras_questions import recipe, settings_of
from benchmarks.measure import timed
from rampup.engines.keras import data as keras_data
from rampup.engines.keras import setup as keras_setup
from rampup.engines.keras.setup import tf
from rampup.engines.keras.world import World
from rampup.runtime.context import RankContext

PASSES, THREADS = 12, 2


def main(which: str, rows: int) -> None:
    """Both read the same samples: rows of word numbers that lie ready in memory."""
    settings, context = settings_of(rows), RankContext(threads=THREADS)
    if which == "ours":
        keras_setup.prepare(context, 0, None, None, 1)
    else:
        as_users_run_it(THREADS)
    data, _ = recipe(settings).data()
    size, batch_size = len(data), settings.batch_size
    steps = -(-size // batch_size)
    if which == "ours":
        batches = keras_data.training_batches(
            data, batch_size, settings.seed, 0, PASSES * steps, World(context)
        )
    else:
        samples = tf.data.Dataset.from_tensor_slices(data.batch(tf.range(size)))
        batches = samples.repeat().shuffle(size).batch(batch_size)
    stream = iter(batches)
    passed = [timed(lambda: consume(stream, steps)) for _ in range(PASSES)]
    # the first one also fills the document's buffer
    print("epoch_s", statistics.median(passed[1:]))


@tf.function  # type: ignore[untyped-decorator]
def consume(stream: Any, steps: int) -> None:
    """As model.fit and the engine do: inside of a graph."""
    for _ in tf.range(steps):
        next(stream)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
