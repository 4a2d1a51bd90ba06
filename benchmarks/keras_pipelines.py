"""One pass over the questions through a tf.data pipeline, and nothing else: prints `epoch_s SECONDS`.

python benchmarks/keras_pipelines.py ours|document ROWS
"""

import statistics
import sys
from typing import Any

import numpy as np

from benchmarks.keras_questions import recipe, settings_of
from benchmarks.measure import timed
from rampup.engines import keras_data, keras_setup
from rampup.engines.keras_setup import tf
from rampup.engines.keras_world import World
from rampup.recipes.questions.generate import questions
from rampup.runtime.context import RankContext

PASSES = 4


def main(which: str, rows: int) -> None:
    """Ours as the recipe has it, with words as numbers; the document's with the texts, as it has them."""
    settings, context = settings_of(rows), RankContext(threads=2)
    keras_setup.prepare(context, 0, None, None, 1)
    tf.random.set_seed(settings.seed)
    data, _ = recipe(settings).data()
    size, batch_size = len(data), settings.batch_size
    steps = -(-size // batch_size)
    if which == "ours":
        batches = keras_data.training(data, batch_size, settings.seed, 0, PASSES * steps, World(context))
    else:
        columns = 3  # the document's buffer has the size of the table: rows times columns
        samples = tf.data.Dataset.from_tensor_slices(tuple(np.array(each) for each in questions(size, settings.seed)))
        batches = samples.repeat().shuffle(size * columns).batch(batch_size)
    stream = iter(batches)
    passed = [timed(lambda: consume(stream, steps)) for _ in range(PASSES)]
    print("epoch_s", statistics.median(passed[1:]))  # the first one also fills the document's buffer


@tf.function  # type: ignore[untyped-decorator]
def consume(stream: Any, steps: int) -> None:
    """As model.fit and the engine do: inside of a graph."""
    for _ in tf.range(steps):
        next(stream)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
