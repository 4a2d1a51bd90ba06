"""The torch engine against what people write by hand: one rank on MNIST, two ranks on a wider
network.

Every side is a whole process as a user starts it; what is compared is the time of its epochs after
the first, so that starting up is no part of it. All train with one thread per rank.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.control import RAMPUP
from benchmarks.measure import Line, faster, not_slower

HERE = Path(__file__).parent
WIDE = HERE / "wide"
MNIST_SAMPLES, WIDE_SAMPLES = 55_000, 30_720
MNIST_EPOCHS, LIGHTNING_EPOCHS, WIDE_EPOCHS = 4, 2, 4


def with_rampup(samples: int, *words: str, cpus: int = 1) -> float:
    """The seconds of the median epoch after the first, with metrics and progress on."""
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "RAMPUP_RUNS": folder, "XDG_STATE_HOME": folder}
        argv = [RAMPUP, "run", *words, "--cpus-per-task", str(cpus), "checkpoint.every=never"]
        subprocess.run(argv, env=env, check=True, capture_output=True)
        done = subprocess.run(
            [RAMPUP, "show", "--history", "--json"], env=env, check=True, capture_output=True
        )
    rates = [float(row["samples_s"]) for row in json.loads(done.stdout) if "samples_s" in row]
    return samples / statistics.median(rates[1:])


def with_script(argv: list[str], threads: int = 1) -> float:
    """The script tells its own seconds per epoch."""
    env = {**os.environ, "OMP_NUM_THREADS": str(threads), "PYTHONPATH": str(HERE.parent)}
    with tempfile.TemporaryDirectory() as folder:  # Lightning leaves its logs where it is
        done = subprocess.run(argv, env=env, cwd=folder, check=True, capture_output=True, text=True)
    return float(done.stdout.rpartition("epoch_s ")[2].split()[0])


def by_hand() -> float:
    return with_script([sys.executable, str(HERE / "mnist" / "by_hand.py"), str(MNIST_EPOCHS)])


def with_lightning() -> float:
    return with_script(
        [sys.executable, str(HERE / "mnist" / "with_lightning.py"), str(LIGHTNING_EPOCHS)]
    )


def with_torchrun() -> float:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    return with_script([*torchrun, str(WIDE / "by_hand.py"), str(WIDE_EPOCHS)])


def mnist_lines(repeats: int) -> Iterator[Line]:
    subprocess.run([RAMPUP, "fetch", "mnist"], check=True, capture_output=True)
    hand, lightning = [], []
    for _ in range(repeats):
        ours = with_rampup(MNIST_SAMPLES, "mnist", f"epochs={MNIST_EPOCHS}")
        hand.append((ours, by_hand()))
        lightning.append((ours, with_lightning()))
    yield not_slower("MNIST epoch / loop by hand, time", hand, 1.10)
    yield faster("MNIST epoch / Lightning, speed", lightning, 4)


def wide_lines(repeats: int) -> Iterator[Line]:
    one, ddp = [], []
    for turn in range(repeats + 2):  # the smallest difference of all has the most repeats
        two = with_rampup(WIDE_SAMPLES, str(WIDE), f"epochs={WIDE_EPOCHS}", "--tasks-per-node", "2")
        ddp.append((two, with_torchrun()))
        if turn < repeats:
            one.append((two, with_rampup(WIDE_SAMPLES, str(WIDE), f"epochs={WIDE_EPOCHS - 1}")))
    yield faster("two ranks / one rank, speed", one, 1.5)
    yield faster("two ranks / torchrun + DDP, speed", ddp, 0.97)


def lines(repeats: int = 5) -> Iterator[Line]:
    yield from mnist_lines(repeats)
    yield from wide_lines(repeats)
