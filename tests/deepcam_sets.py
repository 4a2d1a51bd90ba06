"""Small DeepCam sets for tests."""

from pathlib import Path

import numpy as np

from rampup.datasets.deepcam.files import write_sample
from rampup.datasets.deepcam.generate import name_of
from rampup.datasets.deepcam.stats import compute_stats
from rampup.datasets.deepcam.weather import Sample, make_sample

HEIGHT, WIDTH = 24, 36


def make_calm_set(folder: Path, train: int = 16) -> None:
    """Make a set without storms, on which the score of a network that finds none is 1."""
    for part, samples in (("train", train), ("validation", 3)):
        (folder / part).mkdir(parents=True)
        for index in range(samples):
            data = make_sample(5, index, HEIGHT, WIDTH).data
            none = np.zeros((HEIGHT, WIDTH), np.uint8)
            write_sample(folder / part / name_of(index), Sample(data, none, none))
    files = sorted((folder / "train").iterdir())
    compute_stats(files, folder / "stats.h5", folder / "kept", lambda *_: None, processes=1)
