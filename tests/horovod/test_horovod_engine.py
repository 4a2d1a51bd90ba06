"""strategy=horovod over the real Horovod and MPI, on this machine: the promises of the keras engine
hold there too."""

import fcntl
import json
import os
import shutil
import subprocess
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Cli

from rampup.rundir.files import RunDir
from rampup.runtime.checkpoints.state_files import load_state

TRACED = Path(__file__).parents[1] / "multirank" / "keras_recipe" / "train.py"
RECIPE = """
about = "leaves a trace of every step"
engine = "keras"
entry = "train:{entry}"
requires = ["tensorflow", "tf_keras"]

[train]
samples = 197
validation = 50
batch_size = 40
epochs = 4
lr = 1e-2
log_every = 1
trace = true
how = "stop"
ends = {ends}
"""
CASES: dict[str, dict[str, Any]] = {
    **{f"plain-{ranks}": {"ranks": ranks} for ranks in (1, 2, 3)},
    "whole-2": {"ranks": 2, "entry": "Interrupted"},
    "stopped-2": {"ranks": 2, "entry": "Interrupted", "ends": [12]},
    "raises-2": {"ranks": 2, "entry": "Raises"},
}
"""Five steps in an epoch, the last one smaller: twenty in all."""


class Case:
    def __init__(
        self, folder: Path, ranks: int, entry: str = "Traced", ends: list[int] | None = None
    ) -> None:
        self.folder, self.ranks = folder, ranks
        self.recipe = RECIPE.format(entry=entry, ends=ends or [])
        self.ends = ends

    def start(self, env: Path) -> None:
        """Under mpirun, or one rank alone, as a user would; resumed when it was stopped."""
        recipe = self.folder / "recipe"
        recipe.mkdir(parents=True)
        shutil.copy(TRACED, recipe)
        (recipe / "recipe.toml").write_text(self.recipe)
        cli = Cli(self.folder)
        by_mpi = (
            ("--tasks-per-node", str(self.ranks), "--launcher", "mpirun") if self.ranks > 1 else ()
        )
        words = (
            "run",
            str(recipe),
            "strategy=horovod",
            "--env",
            str(env),
            "--cpus-per-task",
            "1",
            *by_mpi,
        )
        cli(*words, check=None)
        if self.ends:
            cli("resume", self.run.id)

    @property
    def run(self) -> RunDir:
        (found,) = (self.folder / "runs").glob("2*")
        return RunDir(found)

    def log(self, rank: int, attempt: int = 1) -> str:
        return self.run.attempt(attempt).rank_log(rank).read_text()

    def traced(self, what: str) -> list[list[Any]]:
        """For every rank what it left, step by step."""
        files = [self.run.path / f"{what}-{rank}.jsonl" for rank in range(self.ranks)]
        return [[json.loads(line) for line in file.read_text().splitlines()] for file in files]

    def steps(self) -> list[list[int]]:
        """The samples of each step, over all ranks."""
        return [list(chain(*pieces)) for pieces in zip(*self.traced("ids"), strict=True)]

    def state(self) -> dict[str, Any]:
        assert (self.run.checkpoints / "step-20").exists(), "\n".join(
            self.log(rank) for rank in range(self.ranks)
        )
        return load_state(self.run.checkpoints / "step-20")

    def rows(self) -> list[dict[str, Any]]:
        timed = ("t", "samples_s", "epoch_s")
        return [
            {name: value for name, value in row.items() if name not in timed}
            for row in self.run.history()
        ]


@pytest.fixture(scope="module")
def cases(horovod_env: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Case]:
    """All runs once, whatever worker of the test session asks first."""
    base = tmp_path_factory.getbasetemp()
    root = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "horovod"
    root.mkdir(exist_ok=True)
    found = {name: Case(root / name, **case) for name, case in CASES.items()}
    with open(root / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (root / "done").exists():
            for case in found.values():
                case.start(horovod_env)
            (root / "done").touch()
    return found


def test_each_sample_once_per_epoch_and_the_same_batches_on_any_number_of_ranks(
    cases: dict[str, Case],
) -> None:
    steps = cases["plain-1"].steps()
    assert [len(step) for step in steps] == [40, 40, 40, 40, 37] * 4
    for epoch in range(4):
        assert sorted(chain(*steps[5 * epoch : 5 * epoch + 5])) == list(range(197))
    assert cases["plain-2"].steps() == cases["plain-3"].steps() == steps


@pytest.mark.parametrize("name", ["plain-2", "plain-3"])
def test_weights_agree_after_twenty_steps(cases: dict[str, Case], name: str) -> None:
    pairs = zip(cases["plain-1"].state()["model"], cases[name].state()["model"], strict=True)
    assert max(float(np.abs(one - other).max()) for one, other in pairs) < 1e-5


@pytest.mark.parametrize("name", ["plain-2", "plain-3", "whole-2"])
def test_all_ranks_hold_equal_weights_in_every_step(cases: dict[str, Case], name: str) -> None:
    first, *others = cases[name].traced("weights")
    assert len(set(first)) == 20
    assert all(other == first for other in others)


@pytest.mark.parametrize("name", ["plain-2", "plain-3"])
def test_validation_counts_each_sample_once(cases: dict[str, Case], name: str) -> None:
    for alone, together in zip(cases["plain-1"].rows(), cases[name].rows(), strict=True):
        assert alone.get("val_accuracy") == together.get("val_accuracy")
        assert alone.get("val_loss", 0.0) == pytest.approx(together.get("val_loss", 0.0), abs=1e-5)
        assert alone["train_loss"] == pytest.approx(together["train_loss"], abs=1e-5)


def test_stopped_and_resumed_it_ends_equal_bit_for_bit(cases: dict[str, Case]) -> None:
    whole, parts = cases["whole-2"], cases["stopped-2"]
    assert parts.run.attempt(2).resume_step() == 13
    assert "\nresumed at step 13\n" in "\n" + parts.log(0, attempt=2), (
        "nothing hinders it to be exact"
    )
    assert whole.rows() == parts.rows()
    one, other = whole.state(), parts.state()
    for part in ("model", "optimizer", "ranks"):
        for mine, theirs in zip(one[part], other[part], strict=True):
            assert mine.tobytes() == theirs.tobytes(), part


def test_ranks_do_not_drop_the_same_units(cases: dict[str, Case]) -> None:
    first, second = cases["whole-2"].state()["ranks"]
    # Dropout's and GaussianNoise's: two counters and a key of 64 bits each
    generators = slice(-12, None)
    assert first[generators].tolist() != second[generators].tolist()


def test_only_rank_0_speaks(cases: dict[str, Case]) -> None:
    assert [
        line for line in cases["plain-3"].log(0).splitlines() if not line.startswith("epoch=")
    ] == []
    assert cases["plain-3"].log(1) == cases["plain-3"].log(2) == ""


def test_what_added_up_is_told(cases: dict[str, Case]) -> None:
    assert cases["plain-3"].run.attempt(1).event("start")["gradients"].startswith("Horovod 0.")


def test_a_rank_that_raises_ends_the_run_with_its_traceback(cases: dict[str, Case]) -> None:
    case = cases["raises-2"]
    assert "Traceback" in case.log(1) and "ValueError: as planned" in case.log(1)
    attempt, facts = case.run.attempt(1), case.run.attempt(1).facts
    assert facts["ended"] - attempt.rank_log(1).stat().st_mtime < 60, "since its last word"
    assert (facts["outcome"], facts["failed_rank"]) == ("failed", 1)
    assert "as planned" in facts["cause"]


WORLDS = """
from rampup.engines.keras.world import build_world
from rampup.errors import RampupError
from rampup.runtime.context import RankContext
context = RankContext(rank=0, local_rank=0, world_size=2, local_world_size=2, attempt=1, threads=1)
for devices in (["GPU:0", "GPU:1"], ["CPU:0"]):
    try:
        build_world("horovod", context, devices)
    except RampupError as error:
        print(error.message, "|", error.hint)
"""


def test_a_rank_that_mpi_did_not_start_does_not_train_alone(horovod_env: Path) -> None:
    done = subprocess.run(
        [horovod_env / "bin" / "python", "-c", WORLDS], capture_output=True, text=True, timeout=180
    )
    several, alone = done.stdout.splitlines()[-2:]
    assert several.startswith("strategy=horovod trains on one device per rank, and rank 0 has 2 |")
    assert alone.startswith(
        "horovod says rank 0 of 1, the launcher says rank 0 of 2 | --launcher mpirun or"
    )
