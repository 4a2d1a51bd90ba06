"""One CosmoFlow sample of 128^3 x 4 through forward, backward and update: prints `epoch_s SECONDS`
for a step, and the peak memory.

TF_ENABLE_ONEDNN_OPTS=0 python benchmarks/cosmoflow_step.py STEPS
"""

import resource
import statistics
import sys
import time
from pathlib import Path

import numpy as np

from rampup.config.recipes import load
from rampup.core.settings import Settings
from rampup.engines.keras.setup import tf, tf_keras
from rampup.recipes.cosmoflow.model import build_network

SIZE = 128


def main(steps: int) -> None:
    recipe = load("cosmoflow", Path())
    defaults = {name: setting.default for name, setting in recipe.settings.items()}
    model = build_network(SIZE, 4, 4, Settings(defaults | {"augment": False, "dropout": 0.5}))
    model.compile(optimizer=tf_keras.optimizers.SGD(1e-3, momentum=0.9), loss="mse")
    numbers = np.random.default_rng(1)
    cube = tf.constant(numbers.poisson(1.0, (1, SIZE, SIZE, SIZE, 4)), tf.float32)
    targets = tf.constant(numbers.uniform(-1, 1, (1, 4)), tf.float32)
    seconds = []
    for _ in range(steps + 1):
        began = time.perf_counter()
        model.train_on_batch(cube, targets)
        seconds.append(time.perf_counter() - began)
    print("parameters", model.count_params())
    print("peak_mb", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
    print("epoch_s", statistics.median(seconds[1:]))


if __name__ == "__main__":
    main(int(sys.argv[1]))
