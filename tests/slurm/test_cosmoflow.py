"""CosmoFlow on a real Slurm: preempted and put back into the queue, its MLPerf log is one log."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from cosmoflow_sets import make_even_set
from mlperf_checker import accepts, keys, values

from rampup.rundir.files import RunDir

from .conftest import Sandbox

pytestmark = pytest.mark.skipif(
    find_spec("tf_keras") is None, reason="it needs pip install 'rampup[keras]'"
)

SMALL = (
    *("n_conv_layers=2", "conv_size=4", "fc1_size=8", "fc2_size=8", "lr=0.01", "batch_size=2"),
    *("epochs=60", "checkpoint.every=10steps", "--cpus-per-task", "1"),
)


def test_a_requeued_run_has_one_log(cli: Any, sandbox: Sandbox, tmp_path: Path) -> None:
    make_even_set(tmp_path / "set", 64, 4)
    words = (f"data={tmp_path / 'set'}", *SMALL, "--nodes", "2", "--slurm", "exclusive")
    started = cli("run", "cosmoflow", *words, "--on", sandbox.name)
    run = RunDir(cli.json("show", started.stdout.strip())["dir"])
    sandbox.wait_for(lambda: any(run.checkpoints.glob("step-*")), "a checkpoint", 180)
    sandbox.sbatch("sleep 0.5", "--partition=urgent", "--nodes=4", "--exclusive")
    assert cli.json("wait", run.id)["state"] == "completed"
    first, second = run.attempts()
    assert first.facts["outcome"] == "again"
    event = second.event("resumed")
    assert event and event["step"] > 0
    log = second.mlperf_file.read_text()
    assert accepts(log, tmp_path)
    assert values(log, "number_of_nodes") == values(log, "number_of_ranks") == [2]
    assert keys(log).count("run_start") == keys(log).count("resumed") == 1
