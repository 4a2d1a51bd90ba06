"""The keras engine against plain `model.fit`, and its tf.data pipeline against the one that courses
show.

Every side is a whole process; what is compared is the time of its epochs after the first, so that
starting up and tracing are no part of it. All train with one thread. The other side is TensorFlow
as users run it; what the engine asks for besides, such as sums that are the same in every run, is
part of ours alone. Needs TensorFlow: pip install 'rampup[keras]'.
"""

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.measure import Line, faster, not_slower
from benchmarks.training import with_rampup, with_script

HERE = Path(__file__).parent
ROWS, VALIDATION, EPOCHS = 40_000, 0.1, 4


def with_fit() -> float:
    return with_script([sys.executable, str(HERE / "keras_fit.py"), str(ROWS), str(EPOCHS)])


def pipeline(which: str) -> float:
    return with_script([sys.executable, str(HERE / "keras_pipelines.py"), which, str(ROWS)])


def lines(repeats: int = 5) -> Iterator[Line]:
    if importlib.util.find_spec("tf_keras") is None:
        print("questions epoch / model.fit: left out (pip install 'rampup[keras]')")
        return
    samples = ROWS - int(ROWS * VALIDATION)
    words = ("questions", f"rows={ROWS}", f"epochs={EPOCHS}")
    fit = [(with_rampup(samples, *words), with_fit()) for _ in range(repeats)]
    yield not_slower("questions epoch / model.fit, time", fit, 1.10)
    pipelines = [(pipeline("ours"), pipeline("document")) for _ in range(repeats)]
    yield faster("tf.data pipeline / the document's, speed", pipelines, 3)
