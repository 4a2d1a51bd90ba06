"""MNIST with a stopwatch on every part of a step. benchmarks/watching.py starts it and reads the
last line it prints.

The stopwatches are put around the engine's own methods here, on the job side; the engine does not
know of them. What a stopwatch takes by itself is measured with one around nothing, and told as
`stopwatch_ns`.
"""

import atexit
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rampup.data.memory import TensorData
from rampup.engines.torch.engine import Training
from rampup.engines.torch.gradients import LocalGradients
from rampup.engines.torch.parts import RunningLoss
from rampup.recipes.mnist.train import Mnist
from rampup.runtime.telemetry.metrics import MetricsWriter
from rampup.runtime.telemetry.progress import Phases, Progress
from rampup.runtime.telemetry.sampler import read_tree_usage


class Watched(Mnist):
    """The recipe itself, unchanged."""


PARTS: dict[str, list[tuple[type, str]]] = {
    "pick the samples of the batch": [(TensorData, "batch")],
    "forward pass and loss": [(Mnist, "loss")],
    "forget the old gradients": [(LocalGradients, "begin")],
    "backward pass": [(LocalGradients, "add")],
    "sum over the ranks (one here)": [(LocalGradients, "reduce")],
    "learning rate and fused Adam": [(Training, "_update")],
    "running loss": [(RunningLoss, "add")],
    "clock of the phases": [(Phases, "mark"), (Phases, "skip")],
    "progress": [(Progress, "step"), (Progress, "milestone")],
    "metric rows": [(MetricsWriter, "write"), (MetricsWriter, "flush"), (RunningLoss, "row_mean")],
}
spent_ns = dict.fromkeys([*PARTS, "epochs", "nothing"], 0)
calls = dict.fromkeys(spent_ns, 0)
begun: dict[str, float] = {}
NOTHING = 200


class Nothing:
    def do(self) -> None:
        pass


def put_stopwatch(part: str, owner: type, method: str) -> None:
    work = getattr(owner, method)

    def watched(*given: Any, **named: Any) -> Any:
        start = time.perf_counter_ns()
        try:
            return work(*given, **named)
        finally:
            spent_ns[part] += time.perf_counter_ns() - start
            calls[part] += 1

    setattr(owner, method, watched)


def around() -> dict[str, float]:
    """CPU seconds so far: of this process's other threads, and of rampup's processes around it."""
    own = time.process_time()
    return {"threads": own - time.thread_time(), "processes": read_tree_usage([command()])[1] - own}


def command() -> int:
    """The topmost process above this one that is rampup's: the command that the user has
    started."""
    top = pid = os.getpid()
    while b"rampup" in Path(f"/proc/{pid}/cmdline").read_bytes():
        top = pid
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return top


def start_the_clock(work: Callable[..., Any]) -> Callable[..., Any]:
    """The first epoch warms up."""

    def watched(training: Training, epoch: int) -> Any:
        if epoch == 2:
            for part in spent_ns:
                spent_ns[part] = calls[part] = 0
            begun.update(around(), wall=time.perf_counter())
        return work(training, epoch)

    return watched


def stopwatch_ns() -> tuple[float, float]:
    """Of one stopwatch: what it adds to the part that it is around, and what it takes in all. The
    quickest of many tries, so that a busy machine does not make the parts look cheaper."""
    nothing, tries = Nothing(), []
    for _ in range(100):
        before, start = spent_ns["nothing"], time.perf_counter_ns()
        for _ in range(NOTHING):
            nothing.do()
        tries.append((spent_ns["nothing"] - before, time.perf_counter_ns() - start))
    return min(inside for inside, _ in tries) / NOTHING, min(whole for _, whole in tries) / NOTHING


def tell() -> None:
    if not begun:
        return
    now = around() | {"wall": time.perf_counter()}
    told = {"spent_ns": spent_ns, "calls": calls, "stopwatch_ns": stopwatch_ns()}
    print("watched", json.dumps(told | {name: now[name] - begun[name] for name in now}))


for part, methods in PARTS.items():
    for owner, method in methods:
        put_stopwatch(part, owner, method)
put_stopwatch("epochs", Training, "_train_epoch")
put_stopwatch("nothing", Nothing, "do")
Training._epoch = start_the_clock(Training._epoch)  # type: ignore[method-assign]
atexit.register(tell)
