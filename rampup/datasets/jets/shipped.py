"""The jets that come with rampup: jets.npz, made by tools/make_jets.py.

Only particles that are there are kept, one jet after the other. The logarithm-like bits of pt are
kept as the step down from the particle before, angles as steps of 1/512; both as two planes of
bytes, which compress well. `unpack` turns them back, `pack` is its inverse.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rampup.datasets.jets.features import (
    PARTICLES,
    Jets,
    Particles,
    describe,
    fixed_bins,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

SHIPPED = Path(__file__).with_name("jets.npz")
STEP = 1 / 512
"""Of the angles, in radians and in eta: about a tenth of a GeV in the mass of a jet."""
DROPPED = 3
"""Bits of a float16 that are rounded away: pt is right to 0.4 percent."""

Array = NDArray[Any]


def read_shipped() -> Jets:
    with np.load(SHIPPED, allow_pickle=False) as stored:
        return to_jets(unpack(stored))


def unpack(stored: "Mapping[str, Array]") -> dict[str, Array]:
    """Return pt, etarel and phirel as (jets, 100), and what is known of each jet."""
    present = np.arange(PARTICLES) < stored["count"][:, None]

    def spread(name: str) -> NDArray[np.int32]:
        low, high = stored[name].astype(np.int32)
        numbers = np.zeros(present.shape, np.int32)
        numbers[present] = low + (high << 8)
        return numbers

    steps = spread("pt")
    bits = np.where(present, 2 * steps[:, :1] - np.cumsum(steps, axis=1), 0) << DROPPED
    found = {"pt": bits.astype(np.uint16).view(np.float16).astype(np.float32)}
    for name in ("etarel", "phirel"):
        folded = spread(name)
        steps = np.where(folded % 2 == 1, -(folded + 1) // 2, folded // 2)
        found[name] = steps.astype(np.float32) * np.float32(STEP)
    return found | {name: stored[name] for name in ("jet", "label", "multiplicity")}


def pack(jets: "Mapping[str, Array]") -> dict[str, Array]:
    """Return what jets.npz holds. pt falls from particle to particle; 0 is none."""
    pt = jets["pt"].astype(np.float16)
    present = pt > 0
    bits = (pt.view(np.uint16).astype(np.int32) + (1 << DROPPED - 1)) >> DROPPED
    bits = np.where(present, bits, 0)
    bits[:, 1:] = bits[:, :-1] - bits[:, 1:]

    def planes(numbers: Array) -> NDArray[np.uint8]:
        flat = numbers[present]
        return np.stack([flat & 255, flat >> 8]).astype(np.uint8)

    packed = {"count": present.sum(1).astype(np.uint8), "pt": planes(bits)}
    for name in ("etarel", "phirel"):
        steps = np.round(jets[name].astype(np.float32) / STEP).astype(np.int32)
        packed[name] = planes(np.where(steps < 0, -2 * steps - 1, 2 * steps))
    others = {"jet": np.float32, "label": np.uint8, "multiplicity": np.uint8}
    return packed | {name: jets[name].astype(dtype) for name, dtype in others.items()}


def to_jets(found: "Mapping[str, Array]") -> Jets:
    """Describe the particles; their energies are as of massless ones. `jet`: pt, eta, mass."""
    jet_pt, jet_eta, mass = found["jet"].astype(np.float32).T
    energy = found["pt"] * np.cosh(found["etarel"] + jet_eta[:, None])
    jet_energy = np.sqrt((jet_pt * np.cosh(jet_eta)) ** 2 + mass**2)
    points = describe(
        Particles(
            found["pt"], found["etarel"], found["phirel"], energy, jet_pt, jet_eta, jet_energy
        )
    )
    label, multiplicity = (found[name].astype(np.int64) for name in ("label", "multiplicity"))
    return Jets(points, mass, label, multiplicity, fixed_bins(mass))
