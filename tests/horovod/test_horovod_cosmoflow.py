"""CosmoFlow over the real Horovod and MPI: two ranks train what one trains, from numbers of samples
that do not divide."""

from pathlib import Path

import numpy as np
import pytest
from conftest import Cli
from cosmoflow_sets import make_even_set

from rampup.rundir.files import RunDir
from rampup.runtime.checkpoints.state_files import load_state

SETTINGS = (
    *("n_conv_layers=2", "conv_size=4", "fc1_size=8", "fc2_size=8", "epochs=3", "batch_size=4"),
    *("optimizer=sgd", "augment=false", "strategy=horovod", "--cpus-per-task", "1"),
)


def test_two_ranks_train_what_one_trains(horovod_env: Path, tmp_path: Path) -> None:
    make_even_set(tmp_path / "set", 11, 5)
    states, errors = [], []
    for ranks in (1, 2):
        (tmp_path / str(ranks)).mkdir()
        cli = Cli(tmp_path / str(ranks))
        by_mpi = ("--tasks-per-node", "2", "--launcher", "mpirun") if ranks == 2 else ()
        words = (f"data={tmp_path / 'set'}", *SETTINGS, "--env", str(horovod_env), *by_mpi)
        cli("run", "cosmoflow", *words)
        run = RunDir(cli.json("show")["dir"])
        states.append(load_state(run.checkpoints / "step-9")["model"])
        errors.append([row["val_mae"] for row in run.history() if "val_mae" in row])
    pairs = zip(*states, strict=True)
    assert max(float(np.abs(one - other).max()) for one, other in pairs) < 1e-5
    assert errors[0] == pytest.approx(errors[1], abs=1e-6)
