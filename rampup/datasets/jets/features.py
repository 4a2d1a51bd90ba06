"""What a jet looks like to a network: eight numbers for each of its particles, and its mass bin.

All readers of jets use it, so that jets of any source are described alike. Pure numpy: nothing is
read here. A row of zeros is no particle; whatever is not a finite number becomes 0.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

PARTICLES = 100
"""The most particles of a jet: those with the largest transverse momentum."""
NAMES = (
    *("eta relative", "phi relative", "log pt relative", "delta R"),
    *("log energy", "log energy relative", "log pt", "cos theta relative"),
)
"""The features of a particle, in their order."""
ETA, PHI, LOG_PT_RELATIVE, LOG_PT = 0, 1, 2, 6
CLASSES = ("W", "Z", "top")
LIGHTEST, HEAVIEST = 10.0, 200.0
"""In GeV. Jets outside are left out."""
FIXED_EDGES = np.append(np.linspace(0.0, HEAVIEST, 20), 10000.0)
"""Of the mass bins: 19 equal ones up to 200 GeV, and one for the rest, which stays empty."""

Floats = NDArray[np.float32]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Jets:
    """Jets with what is known of them; row i of each array is jet i."""

    points: Floats
    """(jets, 100, 8): the features of the particles, zeros where there is none."""
    mass: Floats
    """In GeV."""
    label: Integers
    """0 W, 1 Z, 2 top."""
    multiplicity: Integers
    """The number of particles."""
    mass_bin: Integers
    """The index of the fixed mass bin, which is never counted anew for a file."""

    def __len__(self) -> int:
        return len(self.points)

    def take(self, rows: "Integers | slice") -> "Jets":
        """Return some of the jets."""
        points, mass = self.points[rows], self.mass[rows]
        return Jets(points, mass, self.label[rows], self.multiplicity[rows], self.mass_bin[rows])


class Particles(NamedTuple):
    """Particles of jets, in arrays (jets, particles), and the jets that they belong to."""

    pt: Floats
    etarel: Floats
    phirel: Floats
    energy: Floats
    jet_pt: Floats
    jet_eta: Floats
    jet_energy: Floats


def describe(given: Particles) -> Floats:
    """Return the eight features of each particle."""
    eta = given.etarel + given.jet_eta[:, None]
    axis = given.jet_eta[:, None]
    between = np.cos(given.phirel) + np.sinh(eta) * np.sinh(axis)
    columns = (
        given.etarel,
        given.phirel,
        log_or_zero(divide(given.pt, given.jet_pt)),
        np.hypot(given.etarel, given.phirel),
        log_or_zero(given.energy),
        log_or_zero(divide(given.energy, given.jet_energy)),
        log_or_zero(given.pt),
        between / (np.cosh(eta) * np.cosh(axis)),
    )
    return stack_features(columns, given.pt > 0)


def stack_features(columns: tuple[Floats, ...], present: NDArray[np.bool_]) -> Floats:
    """Return (jets, particles, 8), with zeros where no particle or no finite number is."""
    points = np.empty((*present.shape, len(columns)), np.float32)
    for place, column in enumerate(columns):
        points[..., place] = column
    np.nan_to_num(points, copy=False, nan=0.0, posinf=0.0, neginf=0.0)
    points[~present] = 0.0
    return points


def log_or_zero(values: Floats) -> Floats:
    """Return the logarithm, and 0 where there is none."""
    good = np.isfinite(values) & (values > 0)
    return np.log(values, out=np.zeros_like(values, np.float32), where=good)


def divide(particles: Floats, jets: Floats) -> Floats:
    """Return each particle's part of its jet; 0 where the jet's is not a positive number."""
    good = np.isfinite(jets) & (jets > 0)
    whole = np.where(good, jets, np.inf)
    return (particles / whole[:, None]).astype(np.float32)


def wrap_angle(angle: Floats) -> Floats:
    """Return the same direction between -pi and pi."""
    turned = (angle + np.pi) % (2 * np.pi) - np.pi
    return np.where(np.abs(angle) > np.pi, turned, angle).astype(np.float32)


def fixed_bins(mass: NDArray[np.floating]) -> Integers:
    """Return the fixed bin of each mass: the same number for the same mass in every file."""
    bins: Integers = np.clip(np.digitize(mass, FIXED_EDGES) - 1, 0, len(FIXED_EDGES) - 2)
    return bins


def is_particle(points: Floats) -> NDArray[np.bool_]:
    """Tell particles from the zeros after the last one."""
    found: NDArray[np.bool_] = np.any(points != 0, axis=2)
    return found


def count_particles(points: Floats) -> Integers:
    counts: Integers = is_particle(points).sum(1).astype(np.int64)
    return counts


def mass_of_particles(points: Floats) -> Floats:
    """Return the mass of each jet from its particles, as if these had none themselves.

    It needs only where they are relative to the jet: the mass is the same from every direction.
    """
    pt = np.where(is_particle(points), np.exp(points[..., LOG_PT].astype(np.float64)), 0.0)
    eta, phi = (points[..., place].astype(np.float64) for place in (ETA, PHI))
    energy, along = (pt * np.cosh(eta)).sum(1), (pt * np.sinh(eta)).sum(1)
    across = [(pt * turned).sum(1) for turned in (np.cos(phi), np.sin(phi))]
    square = energy**2 - along**2 - across[0] ** 2 - across[1] ** 2
    mass: Floats = np.sqrt(np.maximum(square, 0)).astype(np.float32)
    return mass


def join(found: list[Jets]) -> Jets:
    """Return the jets of all, one after the other."""
    return Jets(
        points=np.concatenate([jets.points for jets in found]),
        mass=np.concatenate([jets.mass for jets in found]),
        label=np.concatenate([jets.label for jets in found]),
        multiplicity=np.concatenate([jets.multiplicity for jets in found]),
        mass_bin=np.concatenate([jets.mass_bin for jets in found]),
    )
