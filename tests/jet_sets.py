"""Small files of jets for the tests, of those that come with rampup."""

from pathlib import Path

from rampup.datasets.jets.layouts import write_prepared
from rampup.datasets.jets.shipped import read_shipped


def make_jet_file(path: Path, count: int) -> Path:
    """Write the first jets as UCluster prepares them."""
    write_prepared(path, read_shipped().take(slice(count)))
    return path


NARROW = (
    *("points=12", "k=3", "attention_widths=[4,8]", "widths=[8,8,8,8]", "dense_widths=[8,8]"),
    *("epochs=3", "pretrain_epochs=2", "batch_size=16", "statistics_samples=50"),
)
"""A small network, and three epochs of which the last has the clustering loss."""
