"""DeepCam's files: HDF5, one sample each, in the folders train and validation beside a stats.h5.

generate.py writes them, stats.py reads their maps. The recipe asks `check_deepcam` before a run is
submitted and `read_deepcam` when it starts. numpy and h5py are imported only where a file is opened.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rampup.errors import Refused

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from rampup.datasets.deepcam.weather import Sample

DATA, LABELS = "climate/data", "climate/labels_0"
TRAIN, VALIDATION = "train", "validation"
STATS = "stats.h5"
STATISTICS = ("mean", "sqmean", "minval", "maxval")
"""What stats.h5 has of each variable, besides the number of samples."""
VARIABLES = (
    *("TMQ", "U850", "V850", "UBOT", "VBOT", "QREFHT", "PS", "PSL", "T200", "T500", "PRECT"),
    *("TS", "TREFHT", "Z1000", "Z200", "ZBOT"),
)
"""The channels of a sample, in their order."""
CLASSES = ("background", "cyclone", "river")
"""In the order of the labels."""
GET_H5PY = "pip install 'rampup[data]'"


class DeepCam(NamedTuple):
    """A set: its files, and what they have in common."""

    height: int
    width: int
    lowest: tuple[float, ...]
    """The smallest value of each variable, over the training samples."""
    highest: tuple[float, ...]
    train: list[Path]
    validation: list[Path]


def import_h5py() -> Any:
    try:
        import h5py
    except ImportError as error:
        raise Refused(f"DeepCam's files are HDF5, which needs h5py: {error}", GET_H5PY) from None
    return h5py


def list_samples(folder: Path) -> list[Path]:
    """Return the files of samples, in the order of their names."""
    return sorted(folder.glob("data-*.h5"))


def check_deepcam(folder: Path) -> None:
    """Refuse a folder that is not a set of DeepCam, with what to type. No file is opened."""
    if not folder.is_dir():
        raise Refused(
            f"DeepCam's data: there is no folder {folder}",
            "rampup fetch deepcam-demo makes a small set, which is used without data=",
        )
    for part in (TRAIN, VALIDATION):
        if next((folder / part).glob("data-*.h5"), None) is None:
            raise Refused(
                f"DeepCam's data: {folder / part} has no file data-*.h5",
                "data= is the folder that contains train/, validation/ and stats.h5",
            )
    if not (folder / STATS).is_file():
        raise Refused(f"DeepCam's data: {folder / STATS} is missing", how_to_make_stats(folder))


def how_to_make_stats(folder: Path) -> str:
    return f"rampup fetch deepcam --from {folder}, and then data=deepcam"


def read_deepcam(folder: Path) -> DeepCam:
    """Return what a set consists of. One sample and the statistics are opened."""
    check_deepcam(folder)
    train, validation = (list_samples(folder / part) for part in (TRAIN, VALIDATION))
    height, width = _read_shape(train[0])
    stats = read_stats(folder)
    lowest, highest = (tuple(stats[name].tolist()) for name in ("minval", "maxval"))
    return DeepCam(height, width, lowest, highest, train, validation)


def _read_shape(path: Path) -> tuple[int, int]:
    with open_file(path) as content:
        for name in (DATA, LABELS):
            if name not in content:
                raise Refused(
                    f"{path} has no {name}", f"a sample of DeepCam has {DATA} and {LABELS}"
                )
        shape = content[DATA].shape
        if len(shape) != 3 or shape[2] != len(VARIABLES) or content[LABELS].shape != shape[:2]:
            raise Refused(
                f"{path}: {DATA} has the shape {shape}, {LABELS} {content[LABELS].shape}",
                f"they must be (height, width, {len(VARIABLES)}) and (height, width)",
            )
        return int(shape[0]), int(shape[1])


def open_file(path: Path) -> Any:
    """Open an HDF5 file for reading; a damaged one is named."""
    h5py = import_h5py()
    try:
        return h5py.File(path, "r", locking=False)
    except OSError as error:
        raise Refused(
            f"{path} is not a complete HDF5 file: {error}", "copy it again, or take it away"
        ) from None


def read_stats(folder: Path) -> "dict[str, NDArray[np.float64]]":
    """Return the statistics of each variable, or refuse a set that has none."""
    import numpy as np

    path = folder / STATS
    with open_file(path) as content:
        found = {}
        for name in STATISTICS:
            dataset = content.get(f"climate/{name}")
            if dataset is None or dataset.shape != (len(VARIABLES),):
                raise Refused(
                    f"{path} has no climate/{name} of {len(VARIABLES)} numbers",
                    f"take it away, then: {how_to_make_stats(folder)}",
                )
            found[name] = np.asarray(dataset, np.float64)
            if not np.isfinite(found[name]).all():
                raise Refused(
                    f"{path}: climate/{name} has values that are not finite numbers",
                    f"take it away, then: {how_to_make_stats(folder)}",
                )
    return found


def write_sample(path: Path, sample: "Sample") -> None:
    """Write a sample with all that the published files have."""
    h5py = import_h5py()
    with h5py.File(path, "w", locking=False) as file:
        file[DATA] = sample.data
        file["climate/data_stats"] = describe_maps(sample.data)
        for name, labels in (("labels_0", sample.labels), ("labels_1", sample.relaxed)):
            file[f"climate/{name}"] = labels
            file[f"climate/{name}_stats"] = describe_labels(labels)


def describe_maps(data: "NDArray[np.float32]") -> "NDArray[np.float32]":
    """Return mean, max, min and deviation of each variable."""
    import numpy as np

    rows = [function(data, axis=(0, 1)) for function in (np.mean, np.max, np.min, np.std)]
    return np.stack(rows).astype(np.float32)


def describe_labels(labels: "NDArray[np.uint8]") -> "NDArray[np.float32]":
    """Return mean, max, min, deviation, and the percentages of background, cyclones and rivers."""
    import numpy as np

    shares = [100 * float((labels == kind).mean()) for kind in range(3)]
    moments = [labels.mean(), labels.max(), labels.min(), labels.std()]
    return np.array([*moments, *shares], np.float32)


def write_stats(path: Path, count: int, values: "dict[str, NDArray[np.float64]]") -> None:
    h5py = import_h5py()
    with h5py.File(path, "w", locking=False) as file:
        file["climate/count"] = count
        for name in STATISTICS:
            file[f"climate/{name}"] = values[name].astype("float32")
