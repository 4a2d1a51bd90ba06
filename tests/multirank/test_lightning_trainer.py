"""The settings of Lightning's Trainer that have names of their own: each does what it says, in a
module as it is.

And the recipes with real images on both engines: the same batches, so the same numbers.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from rampup.report.build import write_report

from .lightning_cases import Case, started

TELLING = "telling:Telling"
CASES: dict[str, tuple[tuple[str, ...], int]] = {
    "plain": (("max_epochs=1",), 1),
    "limits": (
        (
            "max_epochs=2",
            "limit_train_batches=6",
            "limit_val_batches=3",
            "enable_model_summary=false",
        ),
        1,
    ),
    "parts": (("max_epochs=1", "limit_train_batches=0.25", "limit_val_batches=0.5"), 1),
    "accumulated": (("max_epochs=1", "limit_train_batches=6", "accumulate_grad_batches=3"), 1),
    "clipped": (("max_epochs=1", "limit_train_batches=6", "gradient_clip_val=0.001"), 1),
    "overfitted": (("max_epochs=3", "overfit_batches=2"), 1),
    "tried": (("fast_dev_run=true", "profiler=advanced"), 1),
    "exact": (("max_epochs=1", "precision=64-true", "profiler=simple"), 1),
    "searching": (
        ("max_epochs=1", "limit_train_batches=4", "strategy=ddp_find_unused_parameters_true"),
        2,
    ),
    "together": (("max_epochs=1", "limit_train_batches=4"), 2),
    "by trainer.": (
        ("max_epochs=4", "limit_train_batches=2", "trainer.check_val_every_n_epoch=2"),
        1,
    ),
}
HABITS = (
    "odd_habits:OddHabits",
    "data=odd_habits:DividedByHand",
    "max_epochs=3",
    "enable_model_summary=false",
)
OTHERS: dict[str, tuple[tuple[str, ...], int]] = {
    "habits": (HABITS, 1),
    "habits tried": ((*HABITS, "fast_dev_run=true"), 1),
    "by hand": ((*HABITS, "classes=3", "trainer.use_distributed_sampler=false"), 2),
    "seldom": ((*HABITS, "classes=3", "trainer.check_val_every_n_epoch=2"), 1),
    "slow": (("odd_habits:OddHabits", "data=odd_habits:SlowData", *HABITS[2:]), 1),
    "nothing": (("odd_habits:OddHabits", "data=odd_habits:NoData", *HABITS[2:]), 1),
}
SMALL = ("samples=210", "validation=60", "batch_size=50", "lr=0.05")
RECIPES = {
    "mnist": ("mnist", "max_steps=12", "log_every=4"),
    "digits": ("digits", "epochs=3", "max_steps=60"),
    "normalised": ("cifar10", "arch=small", "width=4", *SMALL, "epochs=1"),
    "cifar10": ("cifar10", "arch=mlp", *SMALL, "epochs=2"),
}


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory, mnist: Path, cifar10: Path) -> dict[str, Case]:
    base = tmp_path_factory.getbasetemp()
    root = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "lightning-trainer"
    made = {
        name: Case(root / name, (TELLING, *words), (world,))
        for name, (words, world) in CASES.items()
    }
    made |= {
        name: Case(root / name.replace(" ", "-"), words, (world,))
        for name, (words, world) in OTHERS.items()
    }
    for name, words in RECIPES.items():
        for engine in ("torch", "lightning"):
            made[f"{name}-{engine}"] = Case(
                root / f"{name}-{engine}", (*words, f"engine={engine}"), (2,)
            )
    return started(root, made)


def told(case: Case) -> dict[str, Any]:
    assert set(case.codes) == {0}, case.log()
    lines = [line for line in case.log().splitlines() if line.startswith("told ")]
    found: dict[str, Any] = json.loads(lines[0].removeprefix("told "))
    return found


def test_limits_are_numbers_of_batches_or_parts_of_them(cases: dict[str, Case]) -> None:
    assert told(cases["plain"])["batches"] == {"train": 64, "val": 64}
    assert told(cases["limits"])["batches"] == {"train": 12, "val": 6}
    assert told(cases["parts"])["batches"] == {"train": 16, "val": 32}
    assert cases["limits"].end["step"] == 12


def test_one_batch_of_everything(cases: dict[str, Case]) -> None:
    assert told(cases["tried"])["batches"] == {"train": 1, "val": 1}
    assert not cases["tried"].run.checkpoints.exists()


def test_overfitting_takes_the_same_batches_again(cases: dict[str, Case]) -> None:
    assert told(cases["overfitted"])["batches"] == {"train": 6, "val": 6}


def test_several_batches_make_a_step(cases: dict[str, Case]) -> None:
    assert told(cases["accumulated"])["batches"]["train"] == 6
    assert told(cases["accumulated"])["steps"] == cases["accumulated"].end["step"] == 2


def test_gradients_are_clipped(cases: dict[str, Case]) -> None:
    assert 0.0009 < told(cases["clipped"])["norm"] < 0.001001
    assert told(cases["plain"])["norm"] > 0.01


def test_precision_and_strategy_are_lightnings_own(cases: dict[str, Case]) -> None:
    assert (told(cases["exact"])["precision"], told(cases["exact"])["type"]) == (
        "64-true",
        "torch.float64",
    )
    assert (told(cases["plain"])["precision"], told(cases["plain"])["type"]) == (
        "32-true",
        "torch.float32",
    )
    assert told(cases["searching"])["unused"] is True
    assert (told(cases["together"])["strategy"], told(cases["together"])["unused"]) == (
        "DDPStrategy",
        None,
    )


def test_any_other_argument_is_reached_by_its_name(cases: dict[str, Case]) -> None:
    assert told(cases["by trainer."])["batches"] == {"train": 8, "val": 128}


def test_the_summary_is_in_the_log_unless_nobody_wants_it(cases: dict[str, Case]) -> None:
    assert "Trainable params: 66" in cases["plain"].log()
    assert "Trainable params" not in cases["limits"].log()


def test_the_table_of_the_profiler_is_in_the_run_and_in_the_report(
    cases: dict[str, Case], tmp_path: Path
) -> None:
    assert "Profile stats for: run_training_batch" in table_of(cases["tried"])
    assert "run_training_batch" in table_of(cases["exact"])
    page = write_report([cases["exact"].run], tmp_path / "report.html").file.read_text()
    assert "run_training_batch" in page.partition("<h2>Profile</h2>")[2]
    assert cases["plain"].last.event("profile") is None


def table_of(case: Case) -> str:
    profile = case.last.event("profile")
    assert profile
    text: str = (case.last.path / profile["file"]).read_text()
    return text


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_has_the_same_numbers_on_both_engines(cases: dict[str, Case], name: str) -> None:
    ours, theirs = cases[f"{name}-torch"], cases[f"{name}-lightning"]
    assert ours.codes == theirs.codes == [0, 0], ours.log() + theirs.log()
    assert ours.end["step"] == theirs.end["step"] > 4
    assert ours.end["best"]["epoch"] == theirs.end["best"]["epoch"]
    for metric in ("train_loss", "val_loss", "val_accuracy"):
        assert theirs.end["metrics"][metric] == pytest.approx(
            ours.end["metrics"][metric], rel=1e-3
        ), metric


def test_what_a_class_has_of_its_own_stays_as_it_is(cases: dict[str, Case]) -> None:
    for name in ("habits", "habits tried"):
        case = cases[name]
        assert case.codes == [0] and "told greedy 32 v8 cuda" in case.log(), case.log()
        assert "warning" not in case.log() and "val_loss" in case.end["metrics"]


def test_loaders_that_divide_the_data_themselves_are_counted_as_they_are(
    cases: dict[str, Case],
) -> None:
    assert cases["by hand"].codes == [0, 0], cases["by hand"].log()
    assert sum(map(sum, cases["by hand"].last.evaluation()["confusion"])) == 103


def test_an_epoch_without_validation_is_not_the_best(cases: dict[str, Case]) -> None:
    found = cases["seldom"].end["best"]
    assert (found["metric"], found["epoch"]) == ("val_accuracy", 2)


def test_waiting_for_data_is_measured(cases: dict[str, Case]) -> None:
    """A note is made of it, as tests/unit/engines/test_lightning_loaders.py shows."""
    assert cases["slow"].end["phases"]["data"] > 1.5, "180 samples of 10 ms"


def test_no_batch_is_no_training(cases: dict[str, Case]) -> None:
    log = cases["nothing"].log()
    assert (
        cases["nothing"].codes == [1]
        and "error: there was nothing to train" in log
        and "Traceback" not in log
    ), log
