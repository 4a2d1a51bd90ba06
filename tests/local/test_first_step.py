"""Before its first step a rank imports torch, and nothing else that is as big."""

import subprocess
from typing import Any

import numpy as np
import pytest
from sklearn import datasets

from rampup.recipe import read_digits
from rampup.rundir.files import RunDir
from rampup.schedulers.local import supervisor_argv

BIG = ("torch._dynamo", "torch._inductor", "sympy", "sklearn", "scipy", "pandas", "lightning")
PROBE = f"""
import atexit, sys

def tell():
    print("imported", [name for name in {BIG} if name in sys.modules], "torch" in sys.modules)

if "rampup.worker" in sys.orig_argv:
    atexit.register(tell)
"""
"""As sitecustomize.py it is in every process of a run, and a rank tells at its end what it has."""


@pytest.mark.parametrize("ranks", [1, 2])
def test_no_rank_of_digits_imports_more_than_torch(cli: Any, ranks: int) -> None:
    cli.script(PROBE, "sitecustomize.py")
    options = ("max_steps=1", "schedule=cosine", "clip=1.0", "weight_decay=0.01")
    env = {"PYTHONPATH": str(cli.cwd)}
    run = RunDir(cli.json("run", "digits", *options, "--tasks-per-node", str(ranks), **env)["dir"])
    assert [imported(run, 1, rank) for rank in range(ranks)] == ["[] True"] * ranks
    # what a requeued job does: the checkpoint is loaded
    subprocess.run(supervisor_argv(run.path), env={**cli.env, **env}, check=True, timeout=120)
    assert run.attempt(2).resume_step() == 1
    assert [imported(run, 2, rank) for rank in range(ranks)] == ["[] True"] * ranks


def test_the_rows_of_digits_are_those_of_scikit_learn() -> None:
    images, labels = read_digits()
    theirs = datasets.load_digits()
    assert np.array_equal(images, theirs.data) and np.array_equal(labels, theirs.target)


def imported(run: RunDir, attempt: int, rank: int) -> str:
    lines = run.attempt(attempt).rank_log(rank).read_text().splitlines()
    (told,) = [line for line in lines if line.startswith("imported ")]
    return told.removeprefix("imported ")
