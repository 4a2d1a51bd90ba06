"""Real ranks for the tests: a small run directory for every case, started by ranks.py."""

import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rampup.config.recipes import load
from rampup.core.engines import ENGINES
from rampup.drill.comparison import read_rows
from rampup.rundir.files import AttemptDir, RunDir
from rampup.runtime.checkpoints.state_files import load_state

HERE = Path(__file__).parent
SMALL = {
    "samples": 197,
    "validation": 50,
    "batch_size": 40,
    "epochs": 4,
    "lr": 1e-2,
    "log_every": 1,
    "trace": True,
}
"""Five steps per epoch, the last one smaller: twenty in all."""


class Case:
    """One run: how it was asked for, and what is left of it."""

    def __init__(
        self,
        folder: Path,
        world: int,
        entry: str = "train:Traced",
        limit: int = 0,
        every: str = "auto",
        attempts: tuple[int, ...] = (),
        engine: str = "torch",
        loop: str = "",
        recipe: str = "",
        killed_at_sync: int = 0,
        stages: bool = False,
        **train: Any,
    ) -> None:
        """`attempts` names the number of ranks of each attempt, when there are several; `loop` the
        engine that drives a torch recipe; `recipe` one of our own; `killed_at_sync` counts the
        files that the first attempt brings to the disk; `stages` gives the node a disk of its own."""
        self.run, self.world, self.limit, self.every = RunDir(folder), world, limit, every
        self.worlds, self.killed_at_sync = attempts or (world,), killed_at_sync
        self.codes: list[int] = []
        self.disk = folder.with_name(f"{folder.name}-disk") if stages else None
        self.entry, self.engine, self.recipe = entry, engine, recipe
        self.loop = loop or engine
        self.train = (
            {name: setting.default for name, setting in ENGINES[engine].settings.items()}
            | SMALL
            | train
        )
        if loop:
            self.train["engine"] = loop
        self.own = train

    def write(self) -> None:
        self.run.attempt(1).path.mkdir(parents=True)
        config = {
            "kind": "engine",
            "recipe": "traced",
            "engine": self.engine,
            "entry": self.entry,
            "builtin": False,
        }
        folder = "recipe" if self.engine == "torch" else f"{self.engine}_recipe"
        config |= {
            "folder": str(HERE / folder),
            "train": self.train,
            "resources": {"gpus_per_node": 0},
        }
        if self.disk:
            self.disk.mkdir()
            config |= {"cluster": {"local_disk": str(self.disk)}}
        config |= {"checkpoint": {"every": self.every, "keep": 2}}
        if self.recipe:
            ours = load(self.recipe, HERE)
            defaults = {name: setting.default for name, setting in ours.settings.items()}
            config |= {
                "recipe": ours.name,
                "entry": ours.entry,
                "builtin": True,
                "train": defaults | self.own,
            }
        self.run.config_file.write_text(json.dumps(config))

    @property
    def attempt(self) -> AttemptDir:
        """The last one."""
        return self.run.attempt(len(self.worlds))

    @property
    def end(self) -> dict[str, Any]:
        found = self.attempt.event("end")
        assert found, f"no end is recorded; rank 0 said: {self.log(0)}"
        return found

    def log(self, rank: int) -> str:
        return self.attempt.rank_log(rank).read_text()

    def epochs(self) -> list[dict[str, Any]]:
        return [row for row in self.attempt.metrics() if "samples_s" in row]

    def traced(self, what: str) -> list[list[Any]]:
        """For every rank what it left."""
        files = [self.run.path / f"{what}-{rank}.jsonl" for rank in range(self.world)]
        return [[json.loads(line) for line in file.read_text().splitlines()] for file in files]

    def state(self) -> dict[str, Any]:
        """Of the last checkpoint."""
        if self.engine == "keras":
            return load_state(self.run.checkpoints / self.end["checkpoint"])
        import torch

        folder = self.run.checkpoints / self.end["checkpoint"]
        if self.loop == "lightning":
            made: dict[str, Any] = torch.load(folder / "state.ckpt", weights_only=False)
            names = [name for name in made["state_dict"] if name.startswith("model.")]
            own = {name.removeprefix("model."): made["state_dict"][name] for name in names}
            return {**made, "model": own}
        path = folder / "state.pt"
        found: dict[str, Any] = torch.load(path, weights_only=True)
        return found

    def weights(self) -> dict[str, Any]:
        model: dict[str, Any] = self.state()["model"]
        return model

    def rows_without_times(self) -> list[dict[str, Any]]:
        return read_rows(self.run)


Start = Callable[[dict[str, dict[str, Any]]], dict[str, Case]]


def start_all(root: Path, wanted: dict[str, dict[str, Any]]) -> dict[str, Case]:
    """Run the cases, unless another process of this test session has done it."""
    root.mkdir(exist_ok=True)
    codes = root / "codes.json"
    cases = {name: Case(root / name, **case) for name, case in wanted.items()}
    with open(root / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not codes.exists():
            codes.write_text(run_ranks(root, cases))
    for name, found in json.loads(codes.read_text()).items():
        cases[name].codes = found
    return cases


def run_ranks(root: Path, cases: dict[str, Case]) -> str:
    asked = {}
    for name, case in cases.items():
        case.write()
        asked[name] = {
            "dir": str(case.run.path),
            "worlds": case.worlds,
            "limit": case.limit,
            "engine": case.loop,
        }
        asked[name] |= {"killed_at_sync": case.killed_at_sync}
    (root / "cases.json").write_text(json.dumps(asked))
    env = {**os.environ, "PYTHONPATH": str(HERE.parents[1])}
    argv = [sys.executable, str(HERE / "ranks.py"), str(root / "cases.json")]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def start(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Start:
    """Run the cases of a module, one after the other."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    return lambda wanted: start_all(shared / request.module.__name__, wanted)
