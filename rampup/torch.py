"""Public: what a recipe of the torch engine uses. It subclasses `Task` or `Classifier`.

Recipes import this module on the job side, where it loads torch. It defines nothing: it only
exports. What does not depend on the engine is in `rampup.recipe`.
"""

from rampup.data.augment import Augment, draws
from rampup.data.formats.columns import Column
from rampup.data.formats.hdf5 import HDF5Files, HDF5Rows
from rampup.data.formats.npy import NpyFiles, NpyRows
from rampup.data.formats.parquet import ParquetRows
from rampup.data.formats.tfrecord import TFRecords
from rampup.data.memory import TensorData
from rampup.data.order import permutation, shard
from rampup.data.reader import Field, SampleReader
from rampup.engines.torch.segmentation import Segmenter
from rampup.engines.torch.task import Classifier, Data, Task

__all__ = [
    "Augment",
    "Classifier",
    "Column",
    "Data",
    "Field",
    "HDF5Files",
    "HDF5Rows",
    "NpyFiles",
    "NpyRows",
    "ParquetRows",
    "SampleReader",
    "Segmenter",
    "TFRecords",
    "Task",
    "TensorData",
    "draws",
    "permutation",
    "shard",
]
