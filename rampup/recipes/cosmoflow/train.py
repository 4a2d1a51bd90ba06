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

from rampup.keras import Field, SampleReader, Task
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
LOOKED_AT = 16
"""Samples from which the mean and the deviation of each redshift are computed."""


class CosmoFlow(Task):
    outputs = PARAMETERS

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.found = read_cosmoflow(find_folder(settings))

    def data(self) -> tuple["Cubes", "Cubes"]:
        settings, found = self.settings, self.found
        train = Cubes(select(found.train, settings.n_train, "n_train"), found.size, settings)
        checked = select(found.validation, settings.n_valid, "n_valid")
        validation = Cubes(checked, found.size, settings)
        if settings.standardize:
            validation.scale = train.scale = find_scale(train)
        return train, validation

    def model(self) -> keras.Model:
        return build_network(self.found.size, CHANNELS, len(PARAMETERS), self.settings)

    def compile_settings(self) -> Mapping[str, Any]:
        errors = [error_of(index, name) for index, name in enumerate(PARAMETERS)]
        return {"loss": self.settings.loss, "metrics": ["mae", *errors]}

    def benchmark(self, optimizer: Any, steps: int) -> Benchmark:
        return describe(self.settings, type(optimizer).__name__)


class Cubes(SampleReader):
    """The samples of files, as the network takes them."""

    def __init__(self, paths: list[Path], size: int, settings: Settings) -> None:
        self.paths, self.size, self.apply_log = paths, size, settings.apply_log
        self.fields = (Field((size, size, size, CHANNELS)), Field((len(PARAMETERS),)))
        self.scale: tuple[NDArray[np.float32], NDArray[np.float32]] | None = None

    def __len__(self) -> int:
        return len(self.paths)

    def files(self) -> list[Path]:
        return self.paths

    def read(self, indices: NDArray[np.int64], out: tuple[NDArray[Any], ...]) -> None:
        for index, cube, targets in zip(indices.tolist(), *out, strict=True):
            counts, found = read_cosmoflow_sample(self.paths[index])
            if counts.shape != cube.shape:
                raise RampupError(
                    f"{self.paths[index]}: a cube of {len(counts)} voxels; others have {self.size}",
                    "put cubes of one size into a folder",
                )
            cube[...], targets[...] = counts, found
            if self.apply_log:
                np.add(cube, 1, out=cube)
                np.log(cube, out=cube)
            else:
                np.divide(cube, max(float(cube.mean()), 1e-9), out=cube)
            if self.scale is not None:
                np.subtract(cube, self.scale[0], out=cube)
                np.divide(cube, self.scale[1], out=cube)


def select(paths: list[Path], count: int, name: str) -> list[Path]:
    """Return the first files; more than there are is refused."""
    if count > len(paths):
        raise RampupError(f"{name}={count}, and there are {len(paths)} files", f"{name}=0")
    return paths[: count or None]


def find_scale(cubes: Cubes) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the mean and the deviation of each redshift in the first samples."""
    count = min(LOOKED_AT, len(cubes))
    rows = np.empty((1, *cubes.fields[0].shape), np.float32)
    targets = np.empty((1, len(PARAMETERS)), np.float32)
    moments = []
    for index in range(count):
        cubes.read(np.array([index]), (rows, targets))
        flat = rows.reshape(-1, CHANNELS).astype(np.float64)
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
