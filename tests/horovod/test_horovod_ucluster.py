"""UCluster over the real Horovod and MPI: two and three ranks train what one trains, across the
switch of losses."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Cli
from jet_sets import NARROW, make_jet_file

from rampup.recipes import ucluster
from rampup.rundir.files import RunDir
from rampup.runtime.checkpoints.state_files import load_state

STEPS = 21
"""Three epochs of 103 jets in batches of 16; the last batch of an epoch has 7."""


def test_ranks_train_what_one_trains_and_agree_on_the_clusters(
    horovod_env: Path, tmp_path: Path
) -> None:
    jets = make_jet_file(tmp_path / "jets.h5", 163)
    recipe = str(copy_recipe(tmp_path / "jets"))
    states, rows = [], []
    for ranks in (1, 2, 3):
        (tmp_path / str(ranks)).mkdir()
        cli = Cli(tmp_path / str(ranks))
        by_mpi = ("--tasks-per-node", str(ranks), "--launcher", "mpirun") if ranks > 1 else ()
        # Adam would make steps of gradients that are nothing but rounding
        words = (*NARROW, "optimizer=sgd", "lr=0.001", "kmeans_weight=1", f"data={jets}")
        words = (*words, "strategy=horovod", "--cpus-per-task", "1")
        cli("run", recipe, *words, "--env", str(horovod_env), *by_mpi)
        run = RunDir(cli.json("show")["dir"])
        states.append(load_state(run.checkpoints / f"step-{STEPS}")["model"])
        rows.append([row for row in run.history() if "val_loss" in row])
    for state in states[1:]:
        assert furthest(states[0], state) < 1e-5
    for found in rows[1:]:
        for name in ("val_clustering_accuracy", "val_bin_accuracy"):
            assert [row[name] for row in found] == [row[name] for row in rows[0]]
        assert found[2]["val_loss"] == pytest.approx(rows[0][2]["val_loss"], abs=1e-4)
    assert rows[0][2]["val_loss"] > rows[0][2]["val_focal"], "the clustering loss has begun"


OPEN = """

class Open(UCluster):
    \"\"\"Its biases let everything through: at 0, where ReLU begins, rounding would decide which are
    trained.\"\"\"

    def model(self):
        model = super().model()
        gapnet = model.get_layer("gapnet")
        for attention in (*gapnet.first, *gapnet.second):
            attention.bias.assign(tf.fill(attention.bias.shape, 0.05))
        return model
"""


def copy_recipe(folder: Path) -> Path:
    """Write the recipe with other biases to begin with."""
    shutil.copytree(Path(ucluster.__file__).parent, folder)
    with (folder / "train.py").open("a") as file:
        file.write(OPEN)
    settings = folder / "recipe.toml"
    settings.write_text(settings.read_text().replace("train:UCluster", "train:Open"))
    return folder


def furthest(one: list[Any], other: list[Any]) -> float:
    pairs = zip(one, other, strict=True)
    return max(float(np.abs(mine - theirs).max()) for mine, theirs in pairs)
