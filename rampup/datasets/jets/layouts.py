"""The two layouts of files of jets: as they are published, and as UCluster prepares them.

files.py opens a file and calls one of the readers; prepare.py writes with `write_prepared`. A file
that does not fit its layout is refused by name.
"""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rampup.datasets.jets.features import (
    HEAVIEST,
    LIGHTEST,
    NAMES,
    PARTICLES,
    Jets,
    count_particles,
    fixed_bins,
    log_or_zero,
    mass_of_particles,
    stack_features,
    wrap_angle,
)
from rampup.datasets.jets.files import LAYOUTS, MASSES, PREPARED, PUBLISHED, find_column
from rampup.errors import Refused

JET_COLUMNS = {"j_mass": 3, "j_w": 55, "j_z": 56, "j_t": 57}
PARTICLE_COLUMNS = {
    "j1_e": 3,
    "j1_erel": 4,
    "j1_pt": 5,
    "j1_ptrel": 6,
    "j1_etarel": 8,
    "j1_phirel": 11,
    "j1_costhetarel": 15,
}
"""Where the columns are in files that do not name them."""
CHUNK = 256
"""Jets that a prepared file compresses together."""
LEVEL = 1

Array = NDArray[Any]


def read_published(path: Path, content: Any) -> Jets:
    """Return W, Z and top jets in the mass window, with the eight features of each particle."""
    particles, jets = (content[name] for name in PUBLISHED)
    if particles.ndim != 3 or jets.ndim != 2 or len(particles) != len(jets):
        raise misshapen(path, content, PUBLISHED)
    names = content.get("jetFeatureNames"), content.get("particleFeatureNames")
    of_jets = find_columns(path, names[0], JET_COLUMNS, jets.shape[1])
    of_particles = find_columns(path, names[1], PARTICLE_COLUMNS, particles.shape[2])
    table = jets[()]
    mass, *kinds = (table[:, of_jets[name]].astype(np.float32) for name in JET_COLUMNS)
    label = read_labels(np.stack(kinds, 1))
    good = np.flatnonzero((label >= 0) & (mass > LIGHTEST) & (mass < HEAVIEST))
    cells = particles[()][good]
    columns = {name: cells[..., place] for name, place in of_particles.items()}
    columns = {name: only_finite(values) for name, values in columns.items()}
    return keep_filled(describe_columns(columns), mass[good], label[good], None)


def describe_columns(columns: dict[str, Array]) -> NDArray[np.float32]:
    """Return the features of the particles with the largest pt, in that order."""
    columns = {name: heaviest_first(values, columns["j1_pt"]) for name, values in columns.items()}
    etarel, phirel = columns["j1_etarel"], wrap_angle(columns["j1_phirel"])
    features = (
        etarel,
        phirel,
        log_or_zero(columns["j1_ptrel"]),
        np.hypot(etarel, phirel),
        log_or_zero(columns["j1_e"]),
        log_or_zero(columns["j1_erel"]),
        log_or_zero(columns["j1_pt"]),
        columns["j1_costhetarel"],
    )
    return fit_particles(stack_features(features, columns["j1_pt"] > 0))


def only_finite(values: Array) -> NDArray[np.float32]:
    """Return the values with 0 for what is not a finite number."""
    return np.nan_to_num(values.astype(np.float32), nan=0.0, posinf=0.0, neginf=0.0)


def heaviest_first(values: Array, pt: Array) -> Array:
    """Sort the particles by pt, as most files have them."""
    falling = np.argsort(-pt, axis=1, kind="stable")
    return np.take_along_axis(values, falling, axis=1)


def read_prepared(path: Path, content: Any) -> Jets:
    """Return the jets of a file of UCluster.

    Its scripts count mass bins anew in a file where one is empty, so the same number may mean
    another mass elsewhere: with `masses` the fixed bins are used, and `pid` only without.
    """
    data, label, bins = (content[name] for name in PREPARED)
    if data.ndim != 3 or data.shape[2] != len(NAMES) or not len(data) == len(label) == len(bins):
        raise misshapen(path, content, PREPARED)
    points = fit_particles(only_finite(data[()]))
    kinds = label[()]
    labels = read_labels(kinds) if kinds.ndim == 2 else kinds.reshape(-1).astype(np.int64)
    if MASSES in content and len(content[MASSES]) == len(data):
        mass = np.asarray(content[MASSES][()], np.float32).reshape(len(data))
        return keep_filled(points, mass, labels, None)
    mass_bin = np.asarray(bins[()]).reshape(len(data), -1)[:, 0].astype(np.int64)
    return keep_filled(points, mass_of_particles(points), labels, mass_bin)


def keep_filled(points: Array, mass: Array, label: Array, mass_bin: Array | None) -> Jets:
    """Leave out jets of no class and jets without a particle."""
    if mass_bin is None:
        mass_bin = fixed_bins(mass)
    multiplicity = count_particles(points)
    good = (label >= 0) & (label < 3) & (multiplicity > 0)
    return Jets(points, mass, label, multiplicity, mass_bin).take(np.flatnonzero(good))


def read_labels(kinds: Array) -> NDArray[np.int64]:
    """Return the class of each row of W, Z, top; -1 where it is none of them."""
    marked = np.nan_to_num(kinds.astype(np.float64)) > 0.5
    return np.where(marked.sum(1) == 1, marked.argmax(1), -1).astype(np.int64)


def fit_particles(points: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the first 100 particles, or zeros after fewer."""
    found = np.zeros((len(points), PARTICLES, points.shape[2]), np.float32)
    size = min(PARTICLES, points.shape[1])
    found[:, :size] = points[:, :size]
    return found


def find_columns(path: Path, names: Any, known: dict[str, int], width: int) -> dict[str, int]:
    """Return where the columns are; a file that has fewer is refused."""
    listed = None if names is None else names[()]
    try:
        found = {name: find_column(listed, name, place) for name, place in known.items()}
    except Refused as error:
        raise Refused(f"{path}: {error.message}", error.hint) from None
    if max(found.values()) >= width:
        raise Refused(f"{path}: {width} columns, and {max(found.values()) + 1} are needed", LAYOUTS)
    return found


def misshapen(path: Path, content: Any, names: tuple[str, ...]) -> Refused:
    shapes = ", ".join(f"{name} {content[name].shape}" for name in names)
    return Refused(f"{path}: the shapes do not fit: {shapes}", LAYOUTS)


def write_prepared(path: Path, jets: Jets) -> None:
    """Write a file that UCluster reads as well: the features, one-hot labels, mass bins, masses."""
    import h5py

    one_hot = np.eye(3, dtype=np.float32)[jets.label]
    others = {"label": one_hot, "pid": jets.mass_bin, MASSES: jets.mass}
    with h5py.File(path, "w", locking=False) as file:
        rows = max(1, min(CHUNK, len(jets)))
        file.create_dataset(
            "data",
            data=jets.points,
            chunks=(rows, *jets.points.shape[1:]),
            compression="gzip",
            compression_opts=LEVEL,
            shuffle=True,
        )
        for name, values in others.items():
            file.create_dataset(name, data=values)
