"""`rampup drill` on a sandbox of its own, because nodes go down: two of the faults; `make drill`
has them all."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from slurm.conftest import Sandbox

HEAVY = str(Path(__file__).parents[2] / "benchmarks" / "heavy")
FAULTS = ("ghost", "preempted-with-grace")


@pytest.fixture(scope="module")
def found(packages: None, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Small and slow: the ranks must still be training when the next attempt begins."""
    sandbox = Sandbox(tmp_path_factory.mktemp("drill"), f"drill{os.getpid()}")
    words = [
        HEAVY,
        "width=64",
        "steps=40",
        "pause_s=0.25",
        "checkpoint.every=2steps",
        "--on",
        sandbox.name,
    ]
    words += [
        "--nodes",
        "2",
        "--json",
        *(word for fault in (*FAULTS, "preempted") for word in ("--fault", fault)),
    ]
    try:
        sandbox.up("--nodes", "4", "--no-accounting", "--grace-time", "10")
        argv = [sys.executable, "-m", "rampup", "drill", *words]
        done = subprocess.run(
            argv, cwd=sandbox.cwd, env=sandbox.env, capture_output=True, text=True, timeout=240
        )
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        yield json.loads(done.stdout)
    finally:
        sandbox.down()


@pytest.mark.parametrize("fault", FAULTS)
def test_it_comes_back_by_itself_and_ends_bit_for_bit(found: Any, fault: str) -> None:
    (trial,) = [trial for trial in found["trials"] if trial["fault"] == fault]
    assert (trial["survived"], trial["equal"], trial["helped"], trial["why"]) == (True, True, 0, "")
    assert trial["attempts"] == 2
    assert trial["redone"] <= 4, (
        "one interval, and what is done while a checkpoint is being written"
    )


def test_what_this_sandbox_can_not_do_is_said(found: Any) -> None:
    assert found["impossible"] == {
        "preempted": "this sandbox gives 10 s of grace: bring it up without --grace-time",
    }
