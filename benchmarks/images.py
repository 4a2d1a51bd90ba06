"""CIFAR-10: augmentation of whole batches against a DataLoader, and training against Lightning with
that DataLoader.

Augmentation is compared with one thread against the two workers of the DataLoader. Both sides train
with one thread for each core of the machine, which the DataLoader's workers share with them, as on
any machine.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.control import RAMPUP
from benchmarks.measure import Line, faster
from benchmarks.training import with_rampup, with_script

HERE = Path(__file__).parent / "cifar"
CORES = os.cpu_count() or 1
ALL, FEW = 50_000, 4096
"""The small network would take minutes for all images, and a part tells as much."""
TRAIN = ("batch_size=256", "lr=0.05", "validation=100", "tta=false", "width=16")


def script(name: str, *words: str, threads: int = 1) -> float:
    return with_script([sys.executable, str(HERE / name), *words], threads)


def augmented(repeats: int) -> Line:
    pairs = [
        (script("whole_batches.py", "3"), script("with_dataloader.py", "3")) for _ in range(repeats)
    ]
    return faster("augmented images / DataLoader, speed", pairs, 4)


def trained(name: str, arch: str, samples: int, epochs: int, repeats: int, at_least: float) -> Line:
    words = ("cifar10", f"arch={arch}", f"samples={samples}", f"epochs={epochs}", *TRAIN)
    pairs = [
        (
            with_rampup(samples, *words, cpus=CORES),
            script("with_lightning.py", arch, str(samples), str(epochs), threads=CORES),
        )
        for _ in range(repeats)
    ]
    return faster(name, pairs, at_least)


def lines(repeats: int = 5) -> Iterator[Line]:
    subprocess.run([RAMPUP, "fetch", "cifar10"], check=True, capture_output=True)
    yield augmented(repeats)
    yield trained("CIFAR-10 MLP / Lightning, speed", "mlp", ALL, 4, repeats, 1.5)
    yield trained("CIFAR-10 CNN / Lightning, speed", "small", FEW, 4, repeats, 1.0)
