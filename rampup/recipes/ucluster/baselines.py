"""Clusters without a network: what k-means makes of the mass and the number of particles alone.

    python -m rampup.recipes.ucluster.baselines [FILE]

Each is fitted on the training jets and counted on the third part, with three seeds. No label enters
a fit. What the network is worth is how far it is above them.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rampup.recipes.ucluster.clusters import assign, count_pairs, fit_kmeans, match_clusters
from rampup.recipes.ucluster.jets import CLASSES, read_parts

SEEDS = (0, 1, 2)

Columns = NDArray[np.float64]


def columns_of(jets: Any) -> Columns:
    """Return the mass and the number of particles."""
    return np.stack([jets.mass, jets.multiplicity], 1).astype(np.float64)


def scale_as(train: Columns, jets: Columns) -> Columns:
    """Bring columns to mean 0 and deviation 1, as measured on the training jets."""
    scaled: Columns = (jets - train.mean(0)) / train.std(0)
    return scaled


def rank_among(train: Columns, jets: Columns) -> Columns:
    """Return the part of the training jets that are lighter."""
    ordered = np.sort(train[:, 0])
    return (np.searchsorted(ordered, jets[:, 0]) / len(ordered))[:, None]


BASELINES: dict[str, Callable[[Columns, Columns], Columns]] = {
    "mass": lambda train, jets: scale_as(train[:, :1], jets[:, :1]),
    "mass and multiplicity, standardised": scale_as,
    "rank of the mass": rank_among,
}


def measure(train: Any, third: Any, clusters: int = len(CLASSES)) -> dict[str, list[float]]:
    """Return the accuracy of each baseline on the third part, for each seed."""
    fitted_on, counted_on = columns_of(train), columns_of(third)
    found: dict[str, list[float]] = {}
    for name, prepare in BASELINES.items():
        rows, others = prepare(fitted_on, fitted_on), prepare(fitted_on, counted_on)
        found[name] = []
        for seed in SEEDS:
            centres = fit_kmeans(rows, clusters, seed).centres
            pairs = count_pairs(third.label, assign(others, centres), len(CLASSES), clusters)
            found[name].append(match_clusters(pairs).accuracy)
    return found


def main() -> None:
    train, _, third = read_parts(Path(sys.argv[1]) if sys.argv[1:] else None)
    print(f"{len(train)} training jets, {len(third)} in the third part")
    for name, accuracies in measure(train, third).items():
        seeds = ", ".join(f"{accuracy:.4f}" for accuracy in accuracies)
        print(f"k-means on {name}: {seeds}")


if __name__ == "__main__":
    main()
