"""The torch engine against what people write by hand: one rank on MNIST, two ranks on a wider network."""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.control import RAMPUP
from benchmarks.measure import Line

WIDE = Path(__file__).parent / "wide"
REPEATS = 5
EPOCHS = 3


def rampup_samples_s(*words: str) -> float:
    """The median epoch of a run through the command line, with metrics and progress on."""
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "RAMPUP_RUNS": folder, "XDG_STATE_HOME": folder}
        subprocess.run([RAMPUP, "run", *words, "checkpoint=false"], env=env, check=True, capture_output=True)
        done = subprocess.run([RAMPUP, "show", "--history", "--json"], env=env, check=True, capture_output=True)
    return statistics.median(row["samples_s"] for row in json.loads(done.stdout) if "samples_s" in row)


def torchrun_samples_s() -> float:
    argv = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node=2",
        str(WIDE / "by_hand.py"),
    ]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(argv, env=env, check=True, capture_output=True, text=True)
    return float(done.stdout.partition("samples_s ")[2].split()[0])


def by_hand_samples_s() -> float:
    """A hand-written loop over the same tensors with the same fused optimizer, in a process of its own."""
    code = "from benchmarks.training import mnist_by_hand; print(mnist_by_hand())"
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=env, check=True, capture_output=True, text=True)
    return float(done.stdout)


def mnist_by_hand() -> float:
    import torch
    from torch import nn
    from torch.nn.functional import cross_entropy

    from rampup.recipes.mnist.train import Mnist
    from rampup.runtime.settings import Settings

    torch.set_num_threads(1)
    data, _ = Mnist(Settings({})).data()
    images, labels = data.batch(torch.arange(len(data)))
    model = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 10))
    optimizer = torch.optim.Adam(model.parameters(), 1e-3, fused=True)
    rates = []
    for _ in range(EPOCHS):
        order = torch.randperm(len(images))
        began = time.perf_counter()
        for low in range(0, len(images), 100):
            chosen = order[low : low + 100]
            optimizer.zero_grad(set_to_none=True)
            cross_entropy(model(images[chosen]), labels[chosen]).backward()
            optimizer.step()
        rates.append(len(images) / (time.perf_counter() - began))
    return statistics.median(rates)


def line(
    name: str, pairs: list[tuple[float, float]], samples: int, at_least: float | None, at_most: float | None
) -> Line:
    """Pairs are samples per second, ours and theirs; shown as seconds per epoch. A bound on speed or on time."""
    ours, theirs = (statistics.median(side) for side in zip(*pairs, strict=True))
    speed = statistics.median(mine / other for mine, other in pairs)
    shown = speed if at_least is not None else 1 / speed
    each = sorted((mine / other if at_least is not None else other / mine) for mine, other in pairs)
    holds = shown >= at_least if at_least is not None else shown <= (at_most or 0.0)
    bound = f">= {at_least:g}x" if at_least is not None else f"<= {at_most:g}x"
    return Line(name, samples / ours, samples / theirs, shown, f"{each[0]:.2f}-{each[-1]:.2f}", bound, holds)


def lines() -> Iterator[Line]:
    mnist = ("mnist", f"epochs={EPOCHS}", "--cpus-per-task", "1")
    pairs = [(rampup_samples_s(*mnist), by_hand_samples_s()) for _ in range(REPEATS)]
    yield line("MNIST epoch / loop by hand, time", pairs, 55_000, None, 1.10)
    wide = (str(WIDE), "--cpus-per-task", "1")
    two, one, ddp = [], [], []
    for _ in range(REPEATS):
        two.append(rampup_samples_s(*wide, "--tasks-per-node", "2"))
        one.append(rampup_samples_s(*wide))
        ddp.append(torchrun_samples_s())
    yield line("two ranks / one rank, speed", list(zip(two, one, strict=True)), 30_720, 1.5, None)
    yield line("two ranks / torchrun + DDP, speed", list(zip(two, ddp, strict=True)), 30_720, 0.97, None)
