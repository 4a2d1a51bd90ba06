"""A made-up DeepCam set in the real format, of any size: for `rampup fetch deepcam-demo`, and by hand.

    python -m rampup.datasets.deepcam.generate FOLDER --train 8 --validation 2 --height 768 --width 1152

Several processes draw the samples of weather.py. The samples depend on the seed, their number and
the size of the map alone.
"""

import argparse
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from rampup.datasets.deepcam.files import STATS, TRAIN, VALIDATION, write_sample
from rampup.datasets.deepcam.stats import compute_stats
from rampup.datasets.deepcam.weather import make_sample
from rampup.errors import Refused

HEIGHT, WIDTH = 96, 144
TRAIN_SAMPLES, VALIDATION_SAMPLES = 480, 64
SEED = 1
TEST_SEED = 1_000_003
"""The distance between the seeds of the two parts."""
BYTES_PER_PIXEL = 16 * 4 + 2


def make_demo(
    given: Path | None, into: Path, kept: Path, progress: Callable[[int, int], None]
) -> None:
    """Make the set that `rampup fetch deepcam-demo` brings; nothing of it is worth keeping."""
    if given is not None:
        raise Refused(
            f"deepcam-demo is made here, and not from {given}",
            f"rampup fetch deepcam-demo; or, for a set that you have: rampup fetch deepcam --from {given}",
        )
    total = (TRAIN_SAMPLES + VALIDATION_SAMPLES) * HEIGHT * WIDTH * BYTES_PER_PIXEL
    written = 0

    def tick(size: int) -> None:
        nonlocal written
        written += size
        progress(min(written, total), total)

    make_set(into, TRAIN_SAMPLES, VALIDATION_SAMPLES, HEIGHT, WIDTH, SEED, tick=tick)


def make_set(
    folder: Path,
    train: int,
    validation: int,
    height: int,
    width: int,
    seed: int = SEED,
    processes: int | None = None,
    tick: Callable[[int], None] = lambda size: None,
) -> None:
    """Write a set; `tick` gets the bytes of each file."""
    works = []
    for part, samples, part_seed in (
        (TRAIN, train, seed),
        (VALIDATION, validation, seed + TEST_SEED),
    ):
        (folder / part).mkdir(parents=True)
        works += [(folder / part / name_of(index), part_seed, index) for index in range(samples)]
    write = partial(write_one, height=height, width=width)
    workers = min(processes or len(os.sched_getaffinity(0)), len(works))
    if workers == 1:
        for work in works:
            tick(write(work))
    else:
        with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
            for size in pool.map(write, works, chunksize=4):
                tick(size)
    files = [path for path, *_ in works[:train]]
    kept = folder / ".stats.jsonl"
    compute_stats(files, folder / STATS, kept, lambda done, total: None, processes)
    kept.unlink()


def write_one(work: tuple[Path, int, int], height: int, width: int) -> int:
    path, seed, index = work
    write_sample(path, make_sample(seed, index, height, width))
    return path.stat().st_size


def name_of(index: int) -> str:
    """Return a name as the published files have it: year, month, day, time step, run."""
    day, step = divmod(index, 8)
    month, day = divmod(day, 28)
    year, month = divmod(month, 12)
    return f"data-{2100 + year}-{month + 1:02d}-{day + 1:02d}-{step:02d}-1.h5"


def main() -> None:
    parser = argparse.ArgumentParser(description="Make a DeepCam set of made-up weather.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--train", type=int, default=TRAIN_SAMPLES)
    parser.add_argument("--validation", type=int, default=VALIDATION_SAMPLES)
    parser.add_argument("--height", type=int, default=HEIGHT)
    parser.add_argument("--width", type=int, default=WIDTH)
    parser.add_argument("--seed", type=int, default=SEED)
    given = parser.parse_args()
    make_set(given.folder, given.train, given.validation, given.height, given.width, given.seed)


if __name__ == "__main__":
    main()
