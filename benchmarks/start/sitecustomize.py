"""In every process of a run that benchmarks/first_step.py starts: a rank tells of its first step.

Python imports this by its name before anything else. The engine does not know of it.
"""

import sys
from typing import Any


class Watch:
    """Asked for every import: when the recipe is imported, the engine is there already."""

    def find_spec(self, name: str, *place: Any) -> None:
        if name == "rampup.recipes.digits.train":
            sys.meta_path.remove(self)  # type: ignore[arg-type]
            tell_of_first_step()


def tell_of_first_step() -> None:
    from rampup.engines.torch.engine import Training

    usual = Training.take_step

    def watched(training: Training, *given: int) -> None:
        usual(training, *given)
        Training.take_step = usual  # type: ignore[method-assign]
        tell()

    Training.take_step = watched  # type: ignore[assignment,method-assign]


def tell() -> None:
    """The time, and the CPU seconds of all processes from the command on."""
    import os
    import time
    from pathlib import Path

    from rampup.runtime.telemetry.sampler import read_tree_usage

    now = time.time()
    command = pid = os.getpid()
    while b"rampup" in Path(f"/proc/{pid}/cmdline").read_bytes():
        command = pid
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    print("stepped", now, read_tree_usage([command])[1])


if "rampup.worker" in sys.orig_argv:
    sys.meta_path.insert(0, Watch())  # type: ignore[arg-type]
