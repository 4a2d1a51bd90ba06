"""A small CosmoFlow set of made-up universes: TFRecords in the layout of the published one.

`rampup fetch cosmoflow-demo` calls `make_demo`. Other sizes:

    python -m rampup.datasets.cosmoflow.generate FOLDER --train 64 --validation 16 --size 128

Every sample follows from the seed and its number, so several processes write them.
"""

import argparse
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from rampup.datasets.cosmoflow.files import TRAIN, VALIDATION, write_sample
from rampup.datasets.cosmoflow.universe import make_sample
from rampup.errors import Refused

SIZE, PARTICLES, BOX = 32, 64, 256.0
TRAIN_SAMPLES, VALIDATION_SAMPLES = 1024, 256
SEED = 1
VALIDATION_SEED = 1_000_003
"""The distance between the seeds of the two parts."""
BYTES_PER_VOXEL = 2.75
"""About, after gzip, for all four redshifts."""


def make_demo(
    given: Path | None, into: Path, kept: Path, progress: Callable[[int, int], None]
) -> None:
    """Make the set that `rampup fetch cosmoflow-demo` brings; nothing of it is worth keeping."""
    if given is not None:
        raise Refused(
            f"cosmoflow-demo is made here, and not from {given}",
            f"rampup fetch cosmoflow-demo; a set that you have needs no fetch: data={given}",
        )
    total = int((TRAIN_SAMPLES + VALIDATION_SAMPLES) * SIZE**3 * BYTES_PER_VOXEL)
    written = 0

    def tick(size: int) -> None:
        nonlocal written
        written += size
        progress(min(written, total), total)

    make_set(into, TRAIN_SAMPLES, VALIDATION_SAMPLES, tick=tick)


def make_set(
    folder: Path,
    train: int,
    validation: int,
    size: int = SIZE,
    particles: int = PARTICLES,
    box: float = BOX,
    seed: int = SEED,
    processes: int | None = None,
    tick: Callable[[int], None] = lambda size: None,
) -> None:
    """Write a set; `tick` gets the bytes of each file."""
    works = []
    for part, samples, part_seed in (
        (TRAIN, train, seed),
        (VALIDATION, validation, seed + VALIDATION_SEED),
    ):
        (folder / part).mkdir(parents=True)
        works += [(folder / part / name_of(index), part_seed, index) for index in range(samples)]
    write = partial(write_one, size=size, particles=particles, box=box)
    workers = min(processes or len(os.sched_getaffinity(0)), len(works))
    if workers == 1:
        for work in works:
            tick(write(work))
        return
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        for written in pool.map(write, works, chunksize=4):
            tick(written)


def write_one(work: tuple[Path, int, int], size: int, particles: int, box: float) -> int:
    path, seed, index = work
    write_sample(path, make_sample(seed, index, size, particles, box))
    return path.stat().st_size


def name_of(index: int) -> str:
    return f"universe_{index:06d}_000.tfrecord"


def main() -> None:
    parser = argparse.ArgumentParser(description="Make a CosmoFlow set of made-up universes.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--train", type=int, default=TRAIN_SAMPLES)
    parser.add_argument("--validation", type=int, default=VALIDATION_SAMPLES)
    parser.add_argument("--size", type=int, default=SIZE, help="voxels along each axis")
    parser.add_argument("--particles", type=int, default=PARTICLES, help="along each axis")
    parser.add_argument("--box", type=float, default=BOX, help="width in Mpc/h, for H_0 = 70")
    parser.add_argument("--seed", type=int, default=SEED)
    given = parser.parse_args()
    sizes = given.size, given.particles, given.box
    make_set(given.folder, given.train, given.validation, *sizes, given.seed)


if __name__ == "__main__":
    main()
