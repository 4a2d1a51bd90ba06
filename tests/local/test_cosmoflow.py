"""CosmoFlow through the command line: the reference's file, the report, and faults on purpose."""

import json
from importlib.util import find_spec
from pathlib import Path

import pytest
from conftest import Cli
from cosmoflow_sets import make_even_set

from rampup.rundir.files import RunDir

pytestmark = pytest.mark.skipif(
    find_spec("tf_keras") is None, reason="it needs pip install 'rampup[keras]'"
)

SMALL = ("n_conv_layers=2", "conv_size=4", "fc1_size=8", "fc2_size=8", "--cpus-per-task", "1")
CONFIG = """
data: {data_dir: set, n_train: 9, n_valid: 4, batch_size: 4, n_epochs: 30, prefetch: 4}
model: {dropout: 0.1, hidden_activation: LeakyReLU}
optimizer: {name: SGD, momentum: 0.9}
lr_schedule: {base_lr: 0.01, n_warmup_epochs: 1, decay_schedule: {2: 0.5}}
train: {loss: mse, early_stopping_patience: 20}
"""


@pytest.fixture
def data(cli: Cli) -> Path:
    make_even_set(cli.cwd / "set", 11, 5)
    (cli.cwd / "cosmo.yaml").write_text(CONFIG)
    return cli.cwd / "set"


def test_the_reference_s_file_trains_and_the_report_shows_predictions(cli: Cli, data: Path) -> None:
    pytest.importorskip("yaml")
    done = cli("run", "cosmoflow", "config=cosmo.yaml", "n_epochs=3", *SMALL)
    assert "cosmo.yaml: without effect here: data.prefetch" in done.stderr
    assert "meta_optimizer" not in done.stdout + done.stderr, "TensorFlow complains of our layers"
    shown = cli.json("show")
    run = RunDir(shown["dir"])
    assert shown["metrics"]["step"] == 3 * 3
    assert [row["lr"] for row in run.history() if "val_mae" in row] == pytest.approx(
        [0.01, 0.01, 0.005]
    )
    config = json.loads(run.config_file.read_text())
    assert config["origins"]["train.n_train"] == "cosmo.yaml: data.n_train"
    assert "mlperf: " in cli("show").stdout
    pytest.importorskip("altair")
    cli("report", "--out", "page.html")
    page = (cli.cwd / "page.html").read_text()
    for name in ("omega_m", "sigma_8", "n_s", "h_0"):
        assert f"predicted {name}" in page


def test_a_killed_rank_costs_nothing(cli: Cli, data: Path) -> None:
    words = ("cosmoflow", f"data={data}", "epochs=12", "checkpoint.every=3steps", "batch_size=2")
    drilled = cli("drill", *words, *SMALL, "--fault", "rank-killed", "--json", timeout=300)
    found = json.loads(drilled.stdout)
    assert found["ok"] is True, found


def test_the_demo_is_asked_for_where_it_is_absent(cli: Cli) -> None:
    done = cli("run", "cosmoflow", check=3, XDG_CACHE_HOME=str(cli.cwd / "none"))
    assert "rampup fetch cosmoflow-demo" in done.stderr
