"""Small files of jets for the tests, of those that come with rampup."""

from pathlib import Path

from rampup.datasets.jets.layouts import write_prepared
from rampup.datasets.jets.shipped import read_shipped


def make_jet_file(path: Path, count: int) -> Path:
    """Write the first jets as UCluster prepares them."""
    write_prepared(path, read_shipped().take(slice(count)))
    return path
