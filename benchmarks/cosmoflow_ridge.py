"""A ridge regression on power spectra and moments of CosmoFlow cubes, to compare a network with.

python benchmarks/cosmoflow_ridge.py FOLDER

Prints the mean absolute error of each parameter on the validation cubes, relative to predicting the
mean of the training cubes. The penalty is chosen on the last fifth of the training cubes.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rampup.datasets.cosmoflow.cosmology import NAMES
from rampup.datasets.cosmoflow.files import read_cosmoflow, read_sample

Floats = NDArray[Any]
WAVES = 16
BRIGHT = (0, 1, 2, 4, 8, 16, 32)
"""Counts whose frequency is a feature."""
PENALTIES = (1e-3, 1e-2, 0.1, 1.0, 10.0, 100.0, 1000.0)


def describe(cube: NDArray[np.int16]) -> list[float]:
    """Return the features of a cube: of each redshift its spectrum, moments and counts."""
    size = len(cube)
    full, half = np.fft.fftfreq(size, 1 / size), np.fft.rfftfreq(size, 1 / size)
    k = np.sqrt(full[:, None, None] ** 2 + full[None, :, None] ** 2 + half[None, None, :] ** 2)
    rings = np.minimum(k.astype(int), WAVES).reshape(-1)
    found: list[float] = []
    for counts in np.moveaxis(cube.astype(np.float64), -1, 0):
        contrast, logs = counts / counts.mean() - 1, np.log1p(counts)
        power = np.abs(np.fft.rfftn(contrast)).reshape(-1) ** 2
        spectrum = np.bincount(rings, power)[1:WAVES] / np.bincount(rings)[1:WAVES]
        found += np.log(spectrum).tolist()
        found += [contrast.var(), (contrast**3).mean(), np.log((contrast**4).mean())]
        found += [logs.mean(), logs.std(), ((logs - logs.mean()) ** 3).mean()]
        found += [float((counts == number).mean()) for number in BRIGHT]
    return found


def load(paths: list[Path]) -> tuple[Floats, Floats]:
    samples = [read_sample(path) for path in paths]
    features = np.array([describe(counts) for counts, _ in samples])
    return features, np.array([targets for _, targets in samples], np.float64)


def fit(features: Floats, targets: Floats, penalty: float) -> Floats:
    squares = features.T @ features + penalty * np.eye(features.shape[1])
    found: Floats = np.linalg.solve(squares, features.T @ targets)
    return found


def main(folder: Path) -> None:
    given = read_cosmoflow(folder)
    (train, targets), (check, truth) = load(given.train), load(given.validation)
    mean, deviation = train.mean(0), train.std(0) + 1e-9
    train, check = (
        np.column_stack([(part - mean) / deviation, np.ones(len(part))]) for part in (train, check)
    )
    cut = len(train) * 4 // 5
    errors = {
        penalty: np.abs(train[cut:] @ fit(train[:cut], targets[:cut], penalty) - targets[cut:])
        for penalty in PENALTIES
    }
    best = min(PENALTIES, key=lambda penalty: float(errors[penalty].mean()))
    error = np.abs(check @ fit(train, targets, best) - truth).mean(0)
    usual = np.abs(truth - targets.mean(0)).mean(0)
    for name, mine, theirs in zip(
        (*NAMES, "all"), (*error, error.mean()), (*usual, usual.mean()), strict=True
    ):
        print(
            f"{name}: mae {mine:.4f}, predicting the mean {theirs:.4f}, ratio {mine / theirs:.3f}"
        )
    print(f"penalty {best:g}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
