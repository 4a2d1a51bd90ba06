"""Public: what a recipe of the keras engine uses. It subclasses `Task`.

Recipes import this module on the job side, where it loads TensorFlow with Keras 2 (`tf_keras`). It
defines nothing: it only exports. What does not depend on the engine is in `rampup.recipe`.
"""

from rampup.data.formats.columns import Column
from rampup.data.formats.hdf5 import HDF5Files, HDF5Rows
from rampup.data.formats.npy import NpyFiles, NpyRows
from rampup.data.formats.parquet import ParquetRows
from rampup.data.formats.tfrecord import TFRecords
from rampup.data.order import permutation, shard
from rampup.data.reader import Field, SampleReader
from rampup.engines.clusters import Clustering
from rampup.engines.keras.batch_statistics import BatchNormalization
from rampup.engines.keras.ranks import Ranks
from rampup.engines.keras.task import ArrayData, Data, Task

__all__ = [
    "ArrayData",
    "BatchNormalization",
    "Clustering",
    "Column",
    "Data",
    "Field",
    "HDF5Files",
    "HDF5Rows",
    "NpyFiles",
    "NpyRows",
    "ParquetRows",
    "Ranks",
    "SampleReader",
    "TFRecords",
    "Task",
    "permutation",
    "shard",
]
