"""The MLPerf log of a run: written live, put together from attempts, and accepted by the official
checker."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from mlperf_checker import CLOSED, COMMON, accepts, keys, read_lines, values, without

from rampup.config.recipes import load
from rampup.core.mlperf import Benchmark
from rampup.core.settings import Settings
from rampup.engines.torch.lamb import Lamb
from rampup.export.mlperf import check_log, make_log, read_complaints
from rampup.recipes.deepcam.benchmark import describe
from rampup.rundir import mlperf
from rampup.rundir.files import RunDir
from rampup.runtime.context import RankContext
from rampup.runtime.telemetry.metrics import EventsWriter
from rampup.runtime.telemetry.mlperf import MlperfLog, NoMlperf

OFFICIAL = {"train_samples": 121266, "eval_samples": 15158}
ENGINE = {
    "seed": 333,
    "number_of_ranks": 8,
    "number_of_nodes": 2,
    "accelerators_per_node": 4,
    "global_batch_size": 2048,
    "gradient_accumulation_frequency": 1,
}
RULES: dict[str, Any] = {
    "lamb": Lamb,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
}
SCHEDULES = {
    "multistep": {"milestones": [800], "warmup_steps": 400},
    "cosine": {"cosine_steps": 9000},
    "constant": {},
}


def describe_deepcam(rule: str = "lamb", schedule: str = "multistep", **more: Any) -> Benchmark:
    recipe = load("deepcam", Path())
    defaults = {name: setting.default for name, setting in recipe.settings.items()}
    given = {"optimizer": rule, "schedule": schedule, "division": "closed", **more}
    settings = Settings(defaults | given | SCHEDULES[schedule])
    weight = torch.nn.Parameter(torch.ones(1))
    optimizer = RULES[rule]([weight], settings.lr, betas=(0.9, 0.999), eps=settings.eps)
    return describe(settings, optimizer.param_groups[0], type(optimizer).__name__, steps=5000)


class Attempt:
    """One attempt at a run of two steps per epoch, as the loop of an engine writes it."""

    def __init__(self, run: RunDir, number: int, resumed: int | None = None) -> None:
        attempt = run.attempt(number)
        attempt.path.mkdir(parents=True)
        self.events = EventsWriter(attempt)
        self.step = resumed or 0
        if resumed is not None:
            self.events.write("resumed", step=resumed, exact=True)
        self.log = MlperfLog(run, self.events, RankContext(attempt=number, started=time.time() - 5))

    def begin(self, benchmark: Benchmark, **constants: Any) -> "Attempt":
        self.log.begin(benchmark, {**ENGINE, **OFFICIAL, **constants}, self.step)
        return self

    def epoch(self, number: int, accuracy: float | None) -> "Attempt":
        """`accuracy` is None for an epoch that is interrupted after its first step."""
        self.log.start("epoch_start", self.step, number)
        if accuracy is None:
            return self
        self.step = 2 * number
        self.log.point("learning_rate", 0.1, self.step, number)
        self.log.start("eval_start", self.step, number)
        self.log.results({"val_iou": accuracy, "val_loss": 0.1}, self.step, number)
        self.log.end("eval_stop", self.step, number)
        self.log.end("epoch_stop", self.step, number)
        return self

    def stop(self, status: str) -> None:
        self.log.end("run_stop", self.step, status=status)


def read_log(run: RunDir, attempt: int = 1) -> str:
    return run.attempt(attempt).mlperf_file.read_text()


def write_closed(run: RunDir, benchmark: Benchmark) -> str:
    Attempt(run, 1).begin(benchmark).epoch(1, 0.7).epoch(2, 0.83).stop("success")
    return read_log(run)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("rule", RULES)
def test_the_checker_accepts_a_closed_log(tmp_path: Path, rule: str, schedule: str) -> None:
    log = write_closed(RunDir(tmp_path), describe_deepcam(rule, schedule))
    assert accepts(log, tmp_path)
    assert values(log, "opt_name") == [{"lamb": "LAMB"}.get(rule) or RULES[rule].__name__]
    for key in (*COMMON, *CLOSED):
        assert not accepts(without(log, key), tmp_path), f"{key} is missing"
    for key, value in SCHEDULE_KEYS[schedule].items():
        assert values(log, f"scheduler_{key}") == [value]
        assert key == "type" or not accepts(without(log, f"scheduler_{key}"), tmp_path)
    if rule == "lamb":
        for key in ("opt_bias_correction", "opt_grad_averaging", "opt_max_grad_norm"):
            assert not accepts(without(log, key), tmp_path)


SCHEDULE_KEYS: dict[str, dict[str, Any]] = {
    "multistep": {"type": "multistep", "milestones": [800], "decay_rate": 0.1},
    "cosine": {"type": "cosine_annealing", "t_max": 9000, "eta_min": 0.0},
    "constant": {"type": "multistep", "milestones": [], "decay_rate": 0.1},
}


def test_events_come_in_the_order_of_the_rules(tmp_path: Path) -> None:
    log = write_closed(RunDir(tmp_path), describe_deepcam())
    found = keys(log)
    places = [found.index(key) for key in COMMON]
    assert places == sorted(places)
    assert found.index("run_start") == found.index("init_stop") + 1
    assert all(found.index(key) < found.index("init_stop") for key in CLOSED)
    times = [line["time_ms"] for line in read_lines(log)]
    assert times == sorted(times) and all(type(t) is int for t in times)
    epochs = [
        line["metadata"].get("epoch_num") for line in read_lines(log) if "epoch" in line["key"]
    ]
    assert epochs == [1, 1, 2, 2]


def test_cosine_over_the_rest_of_the_run_has_its_length() -> None:
    recipe = load("deepcam", Path())
    settings = Settings({name: setting.default for name, setting in recipe.settings.items()})
    found = describe(settings, {"params": [], "lr": 0.1}, "Adam", steps=500)
    assert found.constants["scheduler_t_max"] == 500 - settings.warmup_steps


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"train_samples": 480}, "train_samples: value == 121266"),
        ({"seed": 0}, "seed: value > 0"),
    ],
)
def test_reasons_are_in_a_few_words(tmp_path: Path, changed: dict[str, Any], reason: str) -> None:
    run = RunDir(tmp_path)
    Attempt(run, 1).begin(describe_deepcam(), **changed).epoch(1, 0.9).stop("success")
    assert check_log(read_log(run)) == (False, [reason])


def test_a_low_score_and_a_missing_event_are_named(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    Attempt(run, 1).begin(describe_deepcam(division="open")).epoch(1, 0.5)
    accepted, why = check_log(read_log(run))
    assert accepted is False
    assert why == [
        "Required EXACTLY_ONE occurrence of 'run_stop' but found 0",
        "eval_accuracy is never as it must be: value >= 0.82 and value <= 1.",
    ]
    assert read_complaints("something else") == ["something else"]


# attempts -----------------------------------------------------------------------------------------


def test_an_interrupted_run_is_one_log_with_the_lost_time(tmp_path: Path) -> None:
    run, benchmark = RunDir(tmp_path), describe_deepcam(division="open")
    Attempt(run, 1).begin(benchmark).epoch(1, 0.3).epoch(2, 0.4).epoch(3, None)
    second = Attempt(run, 2, resumed=2).begin(benchmark).epoch(2, 0.5).epoch(3, 0.9)
    second.stop("success")
    log = read_log(run, 2)
    assert accepts(log, tmp_path)
    assert values(log, "eval_accuracy") == [0.3, 0.5, 0.9]
    assert keys(log).count("init_start") == keys(log).count("run_start") == 1
    assert keys(log).count("epoch_start") == 3 and keys(log).count("resumed") == 1
    first = [line for line in read_log(run, 1).splitlines() if '"epoch_start"' in line]
    begins = [line for line in log.splitlines() if '"epoch_start"' in line]
    assert begins[:2] == first[:2], "epoch 2 began when it first began: the lost time counts"
    assert mlperf.write_log(make_log(run, has_ended=True)) == log


def test_a_run_that_begins_again_without_a_checkpoint(tmp_path: Path) -> None:
    run, benchmark = RunDir(tmp_path), describe_deepcam(division="open")
    Attempt(run, 1).begin(benchmark).epoch(1, 0.3)
    Attempt(run, 2).begin(benchmark).epoch(1, 0.85).stop("success")
    assert values(read_log(run, 2), "eval_accuracy") == [0.85]
    assert accepts(read_log(run, 2), tmp_path)


def test_an_attempt_that_ended_before_it_began_changes_nothing(tmp_path: Path) -> None:
    run, benchmark = RunDir(tmp_path), describe_deepcam(division="open")
    Attempt(run, 1)
    Attempt(run, 2).begin(benchmark).epoch(1, 0.85).stop("aborted")
    Attempt(run, 3, resumed=0)
    assert keys(read_log(run, 2)).count("init_start") == 1
    assert mlperf.write_log(mlperf.read_events(run)) == read_log(run, 2)


def test_a_run_that_was_given_up_ends_as_aborted(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    Attempt(run, 1).begin(describe_deepcam(division="open")).epoch(1, 0.9)
    (run.attempt(1).path / "attempt.json").write_text(json.dumps({"ended": 1.9e9}))
    found = make_log(run, has_ended=True)
    assert found[-1]["metadata"]["status"] == "aborted" and found[-1]["t"] == 1.9e9
    assert accepts(mlperf.write_log(found), tmp_path)
    assert not mlperf.is_complete(make_log(run, has_ended=False))


def test_damaged_events_are_left_out(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    Attempt(run, 1).begin(describe_deepcam()).epoch(1, 0.9).stop("success")
    log = read_log(run)
    with open(run.attempt(1).events_file, "a") as file:
        for row in ({"kind": "odd"}, {"step": "x"}, {"t": -1}, {"key": None}):
            whole = {"what": "mlperf", "t": 1.8e9, "kind": "point", "key": "k", "step": 1}
            file.write(json.dumps(whole | row) + "\n")
        file.write('{"what": "mlperf", "t": 18')
    assert mlperf.write_log(mlperf.read_events(run)) == log


def test_other_ranks_and_other_recipes_write_nothing(tmp_path: Path) -> None:
    NoMlperf().begin(describe_deepcam(), {}, 0)
    run = RunDir(tmp_path)
    Attempt(run, 1).epoch(1, 0.9).stop("success")
    assert not run.attempt(1).mlperf_file.exists()
    assert make_log(run, has_ended=True) == []


def test_a_value_that_is_not_finite_is_null(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    attempt = Attempt(run, 1).begin(describe_deepcam())
    attempt.log.point("train_loss", float("nan"), 1, 1)
    assert values(read_log(run), "train_loss") == [None]
