"""UCluster on this machine, as a user runs it."""

import json
from importlib.util import find_spec
from pathlib import Path

import pytest
from conftest import Cli
from jet_sets import NARROW, make_jet_file

pytestmark = pytest.mark.skipif(
    find_spec("tf_keras") is None, reason="it needs pip install 'rampup[keras]'"
)


def test_a_killed_rank_costs_nothing(cli: Cli, tmp_path: Path) -> None:
    jets = make_jet_file(tmp_path / "jets.h5", 163)
    words = ("ucluster", *NARROW, f"data={jets}", "checkpoint.every=2steps", "--cpus-per-task", "1")
    drilled = cli("drill", *words, "--fault", "rank-killed", "--json", timeout=300)
    found = json.loads(drilled.stdout)
    assert found["ok"] is True, found
