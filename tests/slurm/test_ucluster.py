"""UCluster on a real Slurm with the real Horovod, on one node and on two: what an epoch takes there
is one line of `rampup list`."""

import json
from pathlib import Path
from typing import Any

import pytest
from jet_sets import NARROW, make_jet_file


def test_one_node_against_two(cli: Any, sandbox: Any, horovod_env: Path, tmp_path: Path) -> None:
    jets = make_jet_file(tmp_path / "jets.h5", 163)
    runs = []
    for nodes in (1, 2):
        size = ("--nodes", str(nodes), "--cpus-per-task", "1", "--launcher", "mpirun")
        place = ("--on", sandbox.name, "--env", str(horovod_env))
        words = (*NARROW, f"data={jets}", "strategy=horovod", *size, *place)
        runs.append(cli("run", "ucluster", *words).stdout.strip())
    ends = [cli.json("wait", run) for run in runs]
    assert [end["state"] for end in ends] == ["completed", "completed"]
    columns = "nodes,epoch_s,samples_s,val_clustering_accuracy"
    table = json.loads(cli("list", "--columns", columns, "--json").stdout)
    found = {row["columns"]["nodes"]: row["columns"] for row in table if row["id"] in runs}
    assert sorted(found) == [1, 2]
    assert all(row["epoch_s"] > 0 for row in found.values())
    print(found)
    one, two = (row["val_clustering_accuracy"] for row in found.values())
    assert one == pytest.approx(two)
