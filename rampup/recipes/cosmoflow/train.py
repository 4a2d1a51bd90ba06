"""CosmoFlow: four parameters of the universe from a cube of dark matter at four redshifts.

The regression of MLPerf HPC. A sample is one TFRecord with counts of particles and the parameters,
each scaled to -1 to 1. `rampup fetch cosmoflow-demo` makes a small set. Training files are read
while the model computes, in a new order in every epoch.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras as keras
from numpy.typing import NDArray

from rampup.keras import Column, Task, TFRecords
from rampup.recipe import (
    Benchmark,
    RampupError,
    Settings,
    read_cosmoflow,
    read_cosmoflow_sample,
)
from rampup.recipes.cosmoflow.benchmark import describe
from rampup.recipes.cosmoflow.model import build_network
from rampup.recipes.cosmoflow.settings import find_folder

PARAMETERS = ("omega_m", "sigma_8", "n_s", "h_0")
CHANNELS = 4
Scale = tuple[NDArray[np.float32], NDArray[np.float32]]
LOOKED_AT = 16
"""Samples from which the mean and the deviation of each redshift are computed."""


class CosmoFlow(Task):
    outputs = PARAMETERS

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.found = read_cosmoflow(find_folder(settings))

    def data(self) -> tuple[TFRecords, TFRecords]:
        settings, found = self.settings, self.found
        train = select(found.train, settings.n_train, "n_train")
        validation = select(found.validation, settings.n_valid, "n_valid")
        scale = find_scale(train, settings.apply_log) if settings.standardize else None
        columns = {
            "x": counts_column(found.size, settings.apply_log, scale),
            "y": Column((len(PARAMETERS),)),
        }
        return TFRecords(train, columns), TFRecords(validation, columns)

    def model(self) -> keras.Model:
        # TensorFlow joins layers where it can. At the gradient of a leaky ReLU it fails, and
        # writes a line that reads like an error of the run.
        tf.config.optimizer.set_experimental_options({"remapping": False})
        return build_network(self.found.size, CHANNELS, len(PARAMETERS), self.settings)

    def compile_settings(self) -> Mapping[str, Any]:
        errors = [error_of(index, name) for index, name in enumerate(PARAMETERS)]
        return {"loss": self.settings.loss, "metrics": ["mae", *errors]}

    def benchmark(self, optimizer: Any, steps: int) -> Benchmark:
        return describe(self.settings, type(optimizer).__name__)


def select(paths: list[Path], count: int, name: str) -> list[Path]:
    """Return the first files; more than there are is refused."""
    if count > len(paths):
        raise RampupError(f"{name}={count}, and there are {len(paths)} files", f"{name}=0")
    return paths[: count or None]


def counts_column(size: int, apply_log: bool, scale: Scale | None) -> Column:
    """Return how counts become the input of the network."""
    shape = (size, size, size, CHANNELS)
    mean, deviation = scale or (None, None)
    if apply_log:
        return Column(shape, stored="<i2", log1p=True, subtract=mean, divide=deviation)

    def divide(counts: NDArray[Any], cube: NDArray[Any]) -> None:
        np.divide(counts, max(float(counts.mean()), 1e-9), out=cube)
        if scale is not None:
            np.subtract(cube, scale[0], out=cube)
            np.divide(cube, scale[1], out=cube)

    return Column(shape, stored="<i2", apply=divide)


def find_scale(paths: list[Path], apply_log: bool) -> Scale:
    """Return the mean and the deviation of each redshift in the first samples."""
    moments = []
    for path in paths[:LOOKED_AT]:
        counts = read_cosmoflow_sample(path)[0].astype(np.float64)
        values = np.log1p(counts) if apply_log else counts / max(float(counts.mean()), 1e-9)
        flat = values.reshape(-1, CHANNELS)
        moments.append((flat.mean(0), np.square(flat).mean(0)))
    mean, square = np.mean(moments, axis=0)
    deviation = np.sqrt(np.maximum(square - mean**2, 1e-12))
    return mean.astype(np.float32), deviation.astype(np.float32)


def error_of(index: int, name: str) -> Any:
    """Return the mean absolute error of one parameter, as a metric."""

    def error(y: Any, predicted: Any) -> Any:
        return tf.abs(y[:, index] - predicted[:, index])

    error.__name__ = f"mae_{name}"
    return error
