"""Matter in a box at four redshifts: particles that are displaced from a grid, and counted.

`make_cubes` draws one box from a seed and its number alone. A random field gets the power spectrum
of a cosmology, and the particles move along its first and second order displacements (Lagrangian
perturbation theory), which are computed once and scaled to each redshift. The box is periodic.
generate.py writes what it returns to files.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rampup.datasets.cosmoflow.cosmology import NAMES, Cosmology

Field = NDArray[np.float32]

REDSHIFTS = (0.0, 0.5, 1.5, 3.0)
"""One channel of a cube for each."""
H_0 = 70.0
"""The box is so many Mpc/h wide for this Hubble parameter, and wider for a larger one. Else the
parameter would leave nearly no trace."""


class Sample(NamedTuple):
    cubes: NDArray[np.int16]
    """The numbers of particles: (size, size, size, 4)."""
    targets: NDArray[np.float32]
    """The four parameters, each from -1 to 1."""


class Displacements(NamedTuple):
    """How far the particles of a grid move today, in Mpc/h: three fields for each order."""

    first: tuple[Field, Field, Field]
    """To be multiplied by the linear growth."""
    second: tuple[Field, Field, Field]
    """To be multiplied by the growth of the second order, which is negative."""


def make_sample(seed: int, index: int, size: int, particles: int, box: float) -> Sample:
    """Draw a cosmology and the matter in its box: size^3 voxels, particles^3 particles."""
    numbers = np.random.Generator(np.random.Philox(key=[seed, index]))
    targets = numbers.uniform(-1, 1, len(NAMES))
    cosmology = Cosmology.from_targets(targets)
    width = box * cosmology.h_0 / H_0
    density = draw_density(cosmology, particles, width, numbers)
    moved = displace(density, width)
    cubes = [count(at_redshift(moved, cosmology, z), size, width) for z in REDSHIFTS]
    return Sample(np.stack(cubes, -1), targets.astype(np.float32))


def draw_density(
    cosmology: Cosmology, particles: int, width: float, numbers: np.random.Generator
) -> Field:
    """Draw the linear density today, relative to the mean, at each point of the grid."""
    noise = numbers.standard_normal((particles,) * 3, np.float32)
    k = np.sqrt(sum(axis.astype(np.float64) ** 2 for axis in waves(particles, width)))
    k[0, 0, 0] = 1.0
    # one value of the spectrum for each of many lengths: computing all would take longest of all
    logs = np.log(k)
    table = np.linspace(logs.min(), logs.max(), 1024)
    heights = np.sqrt(cosmology.power(np.exp(table)) * (particles / width) ** 3)
    scale = np.interp(logs, table, heights).astype(np.float32)
    scale[0, 0, 0] = 0.0
    return transform_back(np.fft.rfftn(noise) * scale, particles)


def displace(density: Field, width: float) -> Displacements:
    """Return the displacements that belong to a linear density."""
    size = len(density)
    axes = waves(size, width)
    squares: Field = axes[0] ** 2 + axes[1] ** 2 + axes[2] ** 2
    squares[0, 0, 0] = 1.0
    slopes = [_without_highest(axis) for axis in axes]
    potential = -np.fft.rfftn(density) / squares
    potential[0, 0, 0] = 0.0
    bends = {
        (i, j): transform_back(-axes[i] * axes[j] * potential, size)
        if i == j
        else transform_back(-slopes[i] * slopes[j] * potential, size)
        for i in range(3)
        for j in range(i + 1)
    }
    source = np.zeros_like(density)
    for i in range(3):
        for j in range(i):
            source += bends[i, i] * bends[j, j] - bends[i, j] ** 2
    second = -np.fft.rfftn(source) / squares
    second[0, 0, 0] = 0.0
    first = [transform_back(-1j * axis * potential, size) for axis in slopes]
    more = [transform_back(1j * axis * second, size) for axis in slopes]
    return Displacements((first[0], first[1], first[2]), (more[0], more[1], more[2]))


def at_redshift(moved: Displacements, cosmology: Cosmology, z: float) -> list[Field]:
    """Return how far the particles have come at a redshift, along each axis."""
    first, second = cosmology.growth(z), cosmology.second_growth(z)
    return [
        np.float32(first) * one + np.float32(second) * two
        for one, two in zip(moved.first, moved.second, strict=True)
    ]


def count(offsets: list[Field], size: int, width: float) -> NDArray[np.int16]:
    """Count the particles of a displaced grid in each of size^3 voxels."""
    particles = len(offsets[0])
    voxels = np.zeros(particles**3, np.int64)
    for axis, offset in enumerate(offsets):
        shape = [1, 1, 1]
        shape[axis] = particles
        start = (np.arange(particles, dtype=np.float32) + 0.5) * np.float32(size / particles)
        place = np.floor(start.reshape(shape) + offset * np.float32(size / width))
        voxels *= size
        voxels += (place.astype(np.int64) % size).reshape(-1)
    found = np.bincount(voxels, minlength=size**3).reshape((size,) * 3)
    most = np.iinfo(np.int16).max
    return np.minimum(found, most).astype(np.int16)


# waves --------------------------------------------------------------------------------------------


def waves(size: int, width: float) -> list[Field]:
    """Return the wave numbers along each axis, shaped to be combined."""
    step = 2 * np.pi / width
    full = (np.fft.fftfreq(size, 1 / size) * step).astype(np.float32)
    half = (np.fft.rfftfreq(size, 1 / size) * step).astype(np.float32)
    return [full.reshape(-1, 1, 1), full.reshape(1, -1, 1), half.reshape(1, 1, -1)]


def _without_highest(axis: Field) -> Field:
    """Return wave numbers for a slope: the highest wave of an even grid has none."""
    found = axis.copy()
    found[np.abs(axis) >= np.abs(axis).max()] = 0.0
    return found


def transform_back(waves_of: NDArray[np.complexfloating], size: int) -> Field:
    return np.fft.irfftn(waves_of, s=(size,) * 3, axes=(0, 1, 2)).astype(np.float32, copy=False)
