"""Runs of modules that know nothing of rampup: made by the real control side, for ranks.py and for
a job step."""

import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from rampup.config.recipes import names
from rampup.config.resolve import Request, resolve
from rampup.drill.comparison import read_rows
from rampup.rundir.files import AttemptDir, RunDir
from rampup.runs.plan import make_config

FOREIGN = Path(__file__).parents[1] / "foreign"
DEMOS = "lightning.pytorch.demos.boring_classes"
MODULES = {
    "boring": (f"{DEMOS}:BoringModel",),
    "manual": (f"{DEMOS}:ManualOptimBoringModel",),
    "demo": (f"{DEMOS}:DemoModel", f"data={DEMOS}:BoringDataModule", "learning_rate=0.01"),
    "two": ("two_optimizers:TwoOptimizers", "lr=0.005"),
    "own": ("own_callbacks:OwnCallbacks", "data=own_callbacks:Points", "hidden=8", "batch_size=8"),
    "stream": ("streaming:Streaming",),
}
COMMON = ("max_epochs=3", "enable_model_summary=false", "log_every_n_steps=5")
OTHERS = {
    "accumulated": (
        "own_callbacks:OwnCallbacks",
        "data=own_callbacks:Points",
        "accumulate_grad_batches=3",
    ),
    "profiled": (
        "own_callbacks:OwnCallbacks",
        "data=own_callbacks:Points",
        "profiler=simple",
        "gradient_clip_val=0.5",
    ),
    "tried": (f"{DEMOS}:BoringModel", "fast_dev_run=true"),
    "tried-own": ("own_callbacks:OwnCallbacks", "data=own_callbacks:Points", "fast_dev_run=2"),
    "clipped": (MODULES["manual"][0], "gradient_clip_val=0.5"),
    "digits": ("digits", "engine=lightning", "epochs=2"),
    "digits-torch": ("digits", "epochs=2"),
}


class Case:
    """One run: made by the real control side, started by ranks.py."""

    def __init__(
        self, folder: Path, words: tuple[str, ...], worlds: tuple[int, ...], **fault: int
    ) -> None:
        """`fault` is what ranks.py does in the first attempt."""
        self.run, self.words, self.worlds, self.fault = RunDir(folder), words, worlds, fault
        self.codes: list[int] = []

    def write(self) -> dict[str, Any]:
        target, *settings = self.words
        spec = resolve(Request(target=target, settings=tuple(settings)), FOREIGN)
        self.run.attempt(1).path.mkdir(parents=True)
        self.run.config_file.write_text(
            json.dumps(make_config(spec, self.run.path, (), target in names()))
        )
        engine = (
            "torch" if target in names() and "engine=lightning" not in self.words else "lightning"
        )
        return {"dir": str(self.run.path), "worlds": self.worlds, "engine": engine, **self.fault}

    @property
    def last(self) -> AttemptDir:
        return self.run.attempt(len(self.worlds))

    @property
    def end(self) -> dict[str, Any]:
        found = self.last.event("end")
        assert found, self.log()
        return found

    def log(self) -> str:
        return "".join(
            path.read_text() for path in sorted(self.run.path.glob("attempts/*/rank-*.log"))
        )

    def rows(self) -> list[dict[str, Any]]:
        return read_rows(self.run)

    def state(self) -> dict[str, Any]:
        """Of the last checkpoint."""
        return load(self.run.checkpoints / self.end["checkpoint"] / "state.ckpt")


def started(root: Path, cases: dict[str, Case]) -> dict[str, Case]:
    """All of them, once for all processes of this test session: lightning is imported once."""
    here = Path(__file__).parent
    root.mkdir(exist_ok=True)
    with open(root / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (root / "codes.json").exists():
            (root / "cases.json").write_text(
                json.dumps({name: case.write() for name, case in cases.items()})
            )
            argv = [sys.executable, str(here / "ranks.py"), str(root / "cases.json")]
            env = {**os.environ, "PYTHONPATH": str(here.parents[1])}
            done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=400)
            assert done.returncode == 0, done.stderr
            (root / "codes.json").write_text(done.stdout)
    for name, codes in json.loads((root / "codes.json").read_text()).items():
        cases[name].codes = codes
    return cases


def load(path: Path) -> dict[str, Any]:
    import torch

    found: dict[str, Any] = torch.load(path, weights_only=False)
    return found


def equal(one: Any, two: Any) -> bool:
    """Bit for bit, whatever is inside of what."""
    import torch

    if isinstance(one, torch.Tensor):
        return torch.equal(one, two)
    if isinstance(one, dict):
        return one.keys() == two.keys() and all(equal(one[key], two[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(two) and all(
            equal(first, second) for first, second in zip(one, two, strict=True)
        )
    return bool(one == two)
