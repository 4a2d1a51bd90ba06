"""`rampup fetch jets --from PATH`: the published files, prepared for training.

`prepare` never writes into PATH. Of each published file it makes one with the eight features of W,
Z and top jets between 10 and 200 GeV, and their fixed mass bins. Of files in train/ the first 80 %
are for training and the rest for validation; those in val/ are the third part.
"""

from collections.abc import Callable
from pathlib import Path

from rampup.datasets.jets.files import (
    LAYOUTS,
    PARTS,
    SUFFIXES,
    list_files,
    read_file,
)
from rampup.errors import Refused

Progress = Callable[[int, int], None]
ARCHIVES = (".tar", ".gz", ".tgz", ".zip")
FOR_TRAINING = 0.8
HINT = (
    "rampup fetch jets --from FOLDER, where you unpacked hls4ml_LHCjet_100p_train.tar.gz and "
    "hls4ml_LHCjet_100p_val.tar.gz of zenodo.org/record/3602254"
)


def prepare(given: Path | None, into: Path, kept: Path, progress: Progress) -> None:
    """Fill `into` with prepared files. Nothing needs to stay in `kept` when this is killed."""
    from rampup.datasets.jets.layouts import write_prepared

    parts = list_parts(given)
    sizes = {path: path.stat().st_size for files in parts.values() for path in files}
    done = used = 0
    progress(0, sum(sizes.values()))
    for part, files in parts.items():
        folder = into / part if part else into
        folder.mkdir(exist_ok=True)
        for number, path in enumerate(files):
            jets = read_file(path)
            if len(jets):
                write_prepared(folder / f"jets-{number:04d}.h5", jets)
            used += len(jets)
            done += sizes[path]
            progress(done, sum(sizes.values()))
    if not used:
        raise Refused(f"{given}: there is no W, Z or top jet between 10 and 200 GeV", LAYOUTS)


def list_parts(given: Path | None) -> dict[str, list[Path]]:
    """Return the files for each part; all are of the part "" where they are not in parts."""
    if given is None:
        raise Refused("jets can't be fetched: you have them, or get them from zenodo", HINT)
    if given.is_file() and given.suffix in ARCHIVES:
        raise Refused(f"{given} is an archive", f"tar xf {given}, and then --from its folder")
    if given.is_file() and given.suffix not in SUFFIXES:
        raise Refused(f"{given} is not an HDF5 file", HINT)
    files = list_files(given) if given.exists() else []
    if not files:
        raise Refused(f"{given} has no file *.h5", HINT)
    train, third = (
        [path for path in files if path.is_relative_to(given / name)] for name in ("train", "val")
    )
    if len(train) < 2 or not third:
        return {"": files}
    # one file at least is left for validation
    size = min(len(train) - 1, max(1, round(FOR_TRAINING * len(train))))
    return dict(zip(PARTS, (train[:size], train[size:], third), strict=True))
