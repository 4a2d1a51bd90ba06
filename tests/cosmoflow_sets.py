"""Small CosmoFlow sets for tests."""

from pathlib import Path

from rampup.datasets.cosmoflow.files import write_sample
from rampup.datasets.cosmoflow.universe import make_sample

SIZE = 8
SCALE = 0.05
"""How far the parameters reach: so close together that even a small network is as good as the rules
of MLPerf ask for."""


def make_even_set(folder: Path, train: int, validation: int) -> None:
    for part, samples, seed in (("train", train, 1), ("validation", validation, 2)):
        (folder / part).mkdir(parents=True)
        for index in range(samples):
            sample = make_sample(seed, index, SIZE, SIZE, 64.0)
            path = folder / part / f"universe_{index}.tfrecord"
            write_sample(path, sample._replace(targets=SCALE * sample.targets))
