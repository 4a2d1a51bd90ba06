"""Public: what a recipe uses whichever engine it has, and what its settings check may use.

A settings check runs on the login node, where no framework may be installed. So nothing here
imports a framework, and numpy is imported only when a function that reads data is called. This module defines
nothing: it only exports.
"""

from rampup.core.mlperf import Benchmark
from rampup.core.settings import Settings
from rampup.core.spec import Needs, Translation
from rampup.datasets.cosmoflow.files import check_cosmoflow, read_cosmoflow
from rampup.datasets.cosmoflow.files import read_sample as read_cosmoflow_sample
from rampup.datasets.deepcam.files import check_deepcam, read_deepcam
from rampup.datasets.digits import read_digits
from rampup.datasets.idx import read_idx
from rampup.datasets.jets.files import (
    check_jets,
    fixed_mass_bins,
    list_jet_files,
    mass_bin_edges,
    read_jets,
)
from rampup.datasets.sets import folder as dataset_folder
from rampup.datasets.sets import known_weights, weights_file, weights_name
from rampup.errors import RampupError, Refused, nearest

__all__ = [
    "Benchmark",
    "Needs",
    "RampupError",
    "Refused",
    "Settings",
    "Translation",
    "check_cosmoflow",
    "check_deepcam",
    "check_jets",
    "dataset_folder",
    "fixed_mass_bins",
    "known_weights",
    "list_jet_files",
    "mass_bin_edges",
    "nearest",
    "read_cosmoflow",
    "read_cosmoflow_sample",
    "read_deepcam",
    "read_digits",
    "read_idx",
    "read_jets",
    "weights_file",
    "weights_name",
]
