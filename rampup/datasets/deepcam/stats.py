"""stats.h5 of a DeepCam set: what each variable's values are like over all training samples.

`rampup fetch deepcam --from FOLDER` calls `prepare`, which never writes into FOLDER: the set in the
cache is made of links to its parts and a stats.h5. Several processes read the files. What they have
found is kept line by line, so a later call continues where a killed one was.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rampup.datasets.deepcam.files import (
    DATA,
    STATISTICS,
    STATS,
    TRAIN,
    VALIDATION,
    list_samples,
    open_file,
    read_stats,
    write_stats,
)
from rampup.errors import Refused

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Progress = Callable[[int, int], None]
KEPT_EVERY = 20
"""Files between two writes to the disk."""


def prepare(given: Path | None, into: Path, kept: Path, progress: Progress) -> None:
    """Fill `into` with links to the parts of a set, and its stats.h5.

    `kept` is a folder that stays when this is killed: what has been computed is kept there.
    """
    if given is None:
        raise Refused(
            "deepcam can't be fetched: you have it, or get it from MLCommons",
            "rampup fetch deepcam --from FOLDER, the one that contains train/ and validation/; "
            "a small set: rampup fetch deepcam-demo",
        )
    given = given.absolute()
    parts = {part: list_samples(given / part) for part in (TRAIN, VALIDATION)}
    for part, found in parts.items():
        if not found:
            raise Refused(
                f"{given / part} has no file data-*.h5",
                "--from is the folder that contains train/ and validation/",
            )
        (into / part).symlink_to(given / part)
    if (given / STATS).is_file():
        read_stats(given)
        (into / STATS).symlink_to(given / STATS)
        return
    rows = kept / f"stats-{hashlib.sha256(str(given).encode()).hexdigest()[:16]}.jsonl"
    size = parts[TRAIN][0].stat().st_size
    compute_stats(
        parts[TRAIN], into / STATS, rows, lambda done, all_: progress(done * size, all_ * size)
    )
    rows.unlink()


def compute_stats(
    files: list[Path], target: Path, kept: Path, progress: Progress, processes: int | None = None
) -> None:
    """Compute the statistics of the files; `kept` has those of files that are known already."""
    known = read_kept(kept)
    missing = [path for path in files if stamp(path) not in known]
    progress(len(files) - len(missing), len(files))
    kept.parent.mkdir(parents=True, exist_ok=True)
    with open(kept, "a", encoding="utf-8") as lines:
        for done, (path, row) in enumerate(_describe_all(missing, processes), 1):
            known[stamp(path)] = row
            print(json.dumps({"stamp": stamp(path), **row}), file=lines)
            if done % KEPT_EVERY == 0:
                lines.flush()
            progress(len(files) - len(missing) + done, len(files))
    write_stats(target, len(files), combine([known[stamp(path)] for path in files]))


def _describe_all(files: list[Path], processes: int | None) -> Iterator[tuple[Path, Any]]:
    workers = min(processes or len(os.sched_getaffinity(0)), max(1, len(files)))
    if workers == 1:
        yield from ((path, describe_file(path)) for path in files)
        return
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        yield from zip(files, pool.map(describe_file, files, chunksize=4), strict=True)


def describe_file(path: Path) -> dict[str, list[float]]:
    """Return the statistics of each variable in one file."""
    import numpy as np

    with open_file(path) as content:
        data = np.asarray(content[DATA], np.float32)
    flat = data.reshape(-1, data.shape[-1])
    if not np.isfinite(flat).all():
        raise Refused(
            f"{path}: {DATA} has values that are not finite numbers",
            "copy it again, or take it away",
        )
    return {
        "mean": flat.mean(0, dtype=np.float64).tolist(),
        "sqmean": np.square(flat, dtype=np.float64).mean(0).tolist(),
        "minval": flat.min(0).tolist(),
        "maxval": flat.max(0).tolist(),
    }


def combine(rows: list[Any]) -> "dict[str, NDArray[np.float64]]":
    """Return the statistics over all files; each has as many values."""
    import numpy as np

    ways: tuple[Callable[..., Any], ...] = (np.mean, np.mean, np.min, np.max)
    return {
        name: np.asarray(way([row[name] for row in rows], axis=0), np.float64)
        for name, way in zip(STATISTICS, ways, strict=True)
    }


def read_kept(path: Path) -> dict[str, Any]:
    """Return the rows by their file; a line that was torn by a kill is left out."""
    if not path.is_file():
        return {}
    found = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        found[row.pop("stamp")] = row
    return found


def stamp(path: Path) -> str:
    """Return what changes when a file does."""
    about = path.stat()
    return f"{path.name} {about.st_size} {about.st_mtime_ns}"
