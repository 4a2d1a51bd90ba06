"""Users' own losses, metrics and models in the keras engine: as they are, or refused; nothing is
lost in silence."""

from importlib.util import find_spec
from typing import Any

import pytest

from .conftest import Case, Start

pytestmark = pytest.mark.skipif(
    find_spec("tf_keras") is None, reason="it needs pip install 'rampup[keras]'"
)

TRAINED: dict[str, dict[str, Any]] = {
    "OwnScores": {},
    "F1": {},
    "OwnClass": {"world": 2},
    "OwnClass-mirrored": {"entry": "own:OwnClass", "cpu_devices": 2},
    "Pictures": {},
    "Shapeless": {"cpu_devices": 2},
    "OwnRate-alone": {"entry": "own:OwnRate"},
}
REFUSED: dict[str, tuple[str, str]] = {
    "Summed": ("loss mean_squared_error has reduction='sum'", "leave the reduction out"),
    "Scalar": (
        "loss of_all returns one number for the whole batch",
        "return one number per sample",
    ),
    "Forgetful": (
        "get_config() of Count does not return its argument 'by'",
        "super().get_config(), 'by': self.by}",
    ),
    "Masked": ("the model's output has a mask", "run it as a script"),
    "Legacy": ("optimizers.legacy.SGD is not one", "use optimizers.SGD"),
    "OwnRate": (
        "schedule=cosine warmup_steps=0 beside the optimizer's own schedule",
        "leave one of the two out",
    ),
    "Half": ("mixed_float16 needs a loss that is scaled", "mixed_bfloat16"),
    "Weighed": ("loss_weights would be dropped", "multiply inside the loss"),
    "WeighedMetrics": ("weighted_metrics would be dropped", "name them in metrics"),
    "Computes": ("the model has its own compute_loss", "run it as a script"),
    "Tests": ("the model has its own test_step", "run it as a script"),
    "Two": ("the model returns 2 outputs, the engine trains one", "run it as a script"),
}
ELSEWHERE = {"Scalar-2": {"world": 2}, "Scalar-mirrored": {"cpu_devices": 2}}
"""What is seen only while a graph is made, on several ranks and devices."""
REFUSED |= dict.fromkeys(ELSEWHERE, REFUSED["Scalar"])
USUAL = {"engine": "keras", "world": 1, "batch_size": 10, "epochs": 1, "monitor": "val_loss"}


@pytest.fixture(scope="module")
def cases(start: Start) -> dict[str, Case]:
    wanted = {name: {**USUAL, "entry": f"own:{name}", **case} for name, case in TRAINED.items()}
    for name in REFUSED:
        schedule = "cosine" if name == "OwnRate" else "constant"
        entry = f"own:{name.partition('-')[0]}"
        wanted[name] = {**USUAL, "entry": entry, "schedule": schedule, **ELSEWHERE.get(name, {})}
    return start(wanted)


def last_row(case: Case) -> dict[str, Any]:
    assert set(case.codes) == {0}, case.log(0)
    return case.epochs()[-1]


def test_a_loss_and_metrics_keep_what_they_were_made_with(cases: dict[str, Case]) -> None:
    row = last_row(cases["OwnScores"])
    assert row["train_loss"] == row["val_loss"] == 160.0
    assert row["val_count"] == 5 * 50 and row["val_fixed"] == 50


def test_flat_labels_fit_every_metric(cases: dict[str, Case]) -> None:
    assert last_row(cases["F1"])["val_f1"] == 1.0


@pytest.mark.parametrize("name", ["OwnClass", "OwnClass-mirrored"])
def test_a_model_of_the_users_own_class(cases: dict[str, Case], name: str) -> None:
    assert 0 < last_row(cases[name])["val_loss"] < 16


def test_an_output_whose_shape_follows_from_the_input(cases: dict[str, Case]) -> None:
    assert last_row(cases["Pictures"])["val_accuracy"] == 1.0, (
        "both are as likely, and the first is taken"
    )


def test_gradients_that_do_not_tell_their_shape(cases: dict[str, Case]) -> None:
    assert last_row(cases["Shapeless"])["val_loss"] == 16.0


def test_a_schedule_of_the_optimizers_own(cases: dict[str, Case]) -> None:
    assert last_row(cases["OwnRate-alone"])["lr"] == pytest.approx(0.1 * 0.5 ** (5 / 10), rel=0.1)


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_be_dropped_is_refused_in_one_line(cases: dict[str, Case], name: str) -> None:
    case, (message, hint) = cases[name], REFUSED[name]
    assert set(case.codes) == {1} and "Traceback" not in case.log(0)
    line, second = case.log(0).splitlines()[-2:]  # TensorFlow may warn before
    assert line.startswith("error: ") and message in line
    assert second.startswith("hint: ") and hint in second
