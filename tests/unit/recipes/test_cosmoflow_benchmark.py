"""What CosmoFlow's MLPerf log says of a run: the closed rules accept it."""

import time
from pathlib import Path
from typing import Any

import pytest
from mlperf_checker import accepts, values, without

from rampup.config.recipes import load
from rampup.core.settings import Settings
from rampup.recipes.cosmoflow.benchmark import describe
from rampup.rundir.files import RunDir
from rampup.runtime.context import RankContext
from rampup.runtime.telemetry.metrics import EventsWriter
from rampup.runtime.telemetry.mlperf import MlperfLog

ENGINE = {
    "seed": 1,
    "number_of_ranks": 16,
    "number_of_nodes": 4,
    "accelerators_per_node": 4,
    "global_batch_size": 64,
    "train_samples": 524288,
    "eval_samples": 65536,
}
CLOSED = (
    *("global_batch_size", "opt_name", "opt_base_learning_rate", "opt_learning_rate_warmup_epochs"),
    *("opt_learning_rate_warmup_factor", "opt_learning_rate_decay_boundary_epochs"),
    *("opt_learning_rate_decay_factor", "number_of_nodes", "accelerators_per_node", "eval_error"),
)


def settings(**given: Any) -> Settings:
    defaults = {name: it.default for name, it in load("cosmoflow", Path()).settings.items()}
    usual: dict[str, Any] = {
        "division": "closed",
        "optimizer": "sgd",
        "schedule": "epochs",
        "batch_size": 64,
        "warmup_epochs": 4,
        "drops": [[64, 0.125], [32, 0.25]],
        "lr_scaling": "linear",
    }
    return Settings(defaults | usual | given)


def write_log(folder: Path, **given: Any) -> str:
    run = RunDir(folder)
    run.attempt(1).path.mkdir(parents=True)
    context = RankContext(attempt=1, started=time.time() - 5)
    log = MlperfLog(run, EventsWriter(run.attempt(1)), context)
    log.begin(describe(settings(**given), "SGD"), ENGINE, 0)
    log.start("epoch_start", 0, 1)
    log.start("eval_start", 5, 1)
    log.results({"val_mae": 0.12, "val_loss": 0.03}, 5, 1)
    log.end("eval_stop", 5, 1)
    log.end("epoch_stop", 5, 1)
    log.end("run_stop", 5, status="success")
    return run.attempt(1).mlperf_file.read_text()


def test_the_checker_accepts_a_closed_log_and_misses_each_key(tmp_path: Path) -> None:
    log = write_log(tmp_path / "run")
    assert accepts(log, tmp_path)
    for key in CLOSED:
        assert not accepts(without(log, key), tmp_path), f"{key} is missing"


def test_every_drop_is_in_the_log_in_its_order(tmp_path: Path) -> None:
    log = write_log(tmp_path)
    assert values(log, "opt_learning_rate_decay_boundary_epochs") == [[32, 64]]
    assert values(log, "opt_learning_rate_decay_factor") == [[0.25, 0.125]]


@pytest.mark.parametrize(("scaling", "peak"), [("none", 1), ("linear", 16), ("sqrt", 4)])
def test_the_base_rate_is_the_scaled_peak(tmp_path: Path, scaling: str, peak: int) -> None:
    log = write_log(tmp_path, lr_scaling=scaling, batch_size=1024, lr=0.001)
    assert values(log, "opt_base_learning_rate") == [pytest.approx(0.001 * peak)]
    assert values(log, "opt_learning_rate_warmup_factor") == [peak]


def test_another_schedule_has_neither_warmup_nor_drops(tmp_path: Path) -> None:
    log = write_log(tmp_path, schedule="cosine")
    assert values(log, "opt_learning_rate_decay_boundary_epochs") == [[]]
    assert values(log, "opt_learning_rate_warmup_epochs") == [0]
