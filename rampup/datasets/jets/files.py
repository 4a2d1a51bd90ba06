"""Files of jets: HDF5 as the hls4ml collaboration published them, or as UCluster prepares them.

A published file has `jetConstituentList` and `jets`, one of UCluster `data`, `label` and `pid`. The
recipe asks `check_jets` before a run is submitted and `read_jets` when it starts. numpy and h5py are
imported only where a file is opened.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rampup.errors import Refused

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from rampup.datasets.jets.features import Jets

SUFFIXES = (".h5", ".hdf5")


def mass_bin_edges() -> tuple[float, ...]:
    """Return the edges of the fixed mass bins in GeV."""
    from rampup.datasets.jets.features import FIXED_EDGES

    return tuple(FIXED_EDGES.tolist())


def fixed_mass_bins(mass: "NDArray[Any]") -> "NDArray[np.int64]":
    """Return the fixed bin of each mass: the same number for the same mass in every file."""
    from rampup.datasets.jets.features import fixed_bins

    return fixed_bins(mass)


def read_jets(path: "str | Path | None" = None) -> "Jets":
    """Return the jets of a file, of all files in a folder, or those that come with rampup."""
    if path is None:
        from rampup.datasets.jets.shipped import read_shipped

        return read_shipped()
    raise Refused("not yet")
