"""CosmoFlow: an epoch of the engine against plain `model.fit` on the same pipeline, and one sample of
full size with oneDNN and without.

Every side is a whole process. Needs TensorFlow: pip install 'rampup[keras]'.
"""

import importlib.util
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.measure import Line, faster, not_slower
from benchmarks.training import with_rampup, with_script

HERE = Path(__file__).parent
SAMPLES, EPOCHS, STEPS = 96, 4, 3
SETTINGS: dict[str, Any] = {"conv_size": 12, "n_conv_layers": 4, "batch_size": 8, "n_valid": 1}


def make_set(folder: Path) -> None:
    from rampup.datasets.cosmoflow.generate import make_set as make

    make(folder, SAMPLES, 1, particles=32, processes=1)


def with_engine(folder: Path) -> float:
    given = [f"{name}={value}" for name, value in SETTINGS.items()]
    words = ("cosmoflow", f"data={folder}", f"epochs={EPOCHS}", *given)
    return with_rampup(SAMPLES, *words)


def with_fit(folder: Path) -> float:
    return with_script([sys.executable, str(HERE / "cosmoflow_fit.py"), str(folder), str(EPOCHS)])


def full_step(onednn: str) -> float:
    os.environ["TF_ENABLE_ONEDNN_OPTS"] = onednn
    try:
        threads = len(os.sched_getaffinity(0))
        return with_script([sys.executable, str(HERE / "cosmoflow_step.py"), str(STEPS)], threads)
    finally:
        del os.environ["TF_ENABLE_ONEDNN_OPTS"]


def lines(repeats: int = 5) -> Iterator[Line]:
    if importlib.util.find_spec("tf_keras") is None:
        print("cosmoflow epoch / model.fit: left out (pip install 'rampup[keras]')")
        return
    with tempfile.TemporaryDirectory() as folder:
        make_set(Path(folder))
        fit = [(with_engine(Path(folder)), with_fit(Path(folder))) for _ in range(repeats)]
    yield not_slower("cosmoflow epoch / model.fit on our pipeline, time", fit, 1.05)
    steps = [(full_step("1"), full_step("0")) for _ in range(2)]
    yield faster("cosmoflow 128^3 x 4 step with oneDNN / without, speed", steps, 3)
