"""Make rampup/datasets/jets/jets.npz, the jets that come with rampup, from a larger simulation.

    python tools/make_jets.py SIMULATION.npz

The simulation has for each jet `pt`, `etarel` and `phirel` of up to 100 particles with falling pt
and zeros after the last, `jet` with pt, eta, mass and multiplicity, and `label`: 0 W, 1 Z, 2 top.
Jets between 10 and 200 GeV are drawn at random; the labels have no part in it.
"""

import argparse
import sys
from pathlib import Path

import numpy as np

from rampup.datasets.jets.features import HEAVIEST, LIGHTEST
from rampup.datasets.jets.shipped import SHIPPED, pack

COUNT = 14_200
SEED = 0
KEPT_BITS = 14
"""Of the 24 bits of a float32 of pt, eta and mass: a hundredth of a GeV."""


def select(simulation: Path, count: int) -> dict[str, np.ndarray]:
    with np.load(simulation, allow_pickle=False) as found:
        jets = {name: found[name] for name in ("pt", "etarel", "phirel", "jet", "label")}
    mass = jets["jet"][:, 2]
    good = np.flatnonzero((mass > LIGHTEST) & (mass < HEAVIEST) & (jets["jet"][:, 3] < 256))
    if len(good) < count:
        sys.exit(f"{simulation}: {len(good)} jets between {LIGHTEST} and {HEAVIEST} GeV")
    rows = np.random.default_rng(SEED).permutation(good)[:count]
    jets = {name: array[rows] for name, array in jets.items()}
    jets["multiplicity"] = jets["jet"][:, 3]
    jets["jet"] = shorten(jets["jet"][:, :3])
    return jets


def shorten(values: np.ndarray) -> np.ndarray:
    """Round to fewer bits, whose zeros compress."""
    dropped = 24 - KEPT_BITS
    bits = values.astype(np.float32).view(np.uint32)
    return (((bits + (1 << dropped - 1)) >> dropped) << dropped).view(np.float32)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("simulation", type=Path)
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument("--out", type=Path, default=SHIPPED)
    given = parser.parse_args()
    np.savez_compressed(given.out, **pack(select(given.simulation, given.count)))
    print(f"{given.out}: {given.count} jets, {given.out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
