"""Precision, recall, F1, confusion matrix and PR curves over all ranks, against scikit-learn on all
samples."""

import base64
from typing import Any

import numpy as np
import pytest
from sklearn import metrics

from rampup.core.png import SIGNATURE
from rampup.engines.classes import THRESHOLDS

from .conftest import Case, Start

WORLDS = (1, 3)
SIZE = 211
"""A prime: no number of ranks divides it."""
NAMES = ["one", "two", "three"]


@pytest.fixture(scope="module")
def cases(start: Start) -> dict[str, Case]:
    wanted: dict[str, dict[str, Any]] = {
        str(world): {
            "world": world,
            "entry": "train:Named",
            "validation": SIZE,
            "epochs": 2,
            "eval_batch_size": 30,
        }
        for world in WORLDS
    }
    wanted["fewer samples than ranks"] = {
        "world": 3,
        "entry": "train:Named",
        "validation": 2,
        "epochs": 1,
    }
    wanted["best by f1"] = {"world": 1, "entry": "train:Named", "epochs": 2, "monitor": "val_f1"}
    return start(wanted)


def said(case: Case) -> tuple[np.ndarray, np.ndarray]:
    """What the model said in the last validation: for each sample, in the order of the data."""
    found: dict[int, tuple[int, list[float]]] = {}
    for rank in case.traced("said"):
        # The first is a trial before training; then a later validation takes the place of an
        # earlier one.
        for ids, labels, probabilities in rank[1:]:
            found |= dict(zip(ids, zip(labels, probabilities, strict=True), strict=True))
    rows = [found[number] for number in sorted(found)]
    return np.array([label for label, _ in rows]), np.array([row for _, row in rows])


@pytest.mark.parametrize("world", WORLDS)
def test_they_are_those_of_scikit_learn(cases: dict[str, Case], world: int) -> None:
    case = cases[str(world)]
    labels, probabilities = said(case)
    assert len(labels) == SIZE
    guesses = probabilities.argmax(1)
    kept = case.attempt.evaluation()
    assert kept["classes"] == NAMES and (kept["step"], kept["epoch"]) == (10, 2)
    assert kept["confusion"] == metrics.confusion_matrix(labels, guesses).tolist()
    each = np.stack(metrics.precision_recall_fscore_support(labels, guesses, zero_division=0), 1)
    np.testing.assert_allclose(kept["scores"], each, atol=1e-6)
    row = case.epochs()[-1]
    mean = metrics.precision_recall_fscore_support(
        labels, guesses, average="macro", zero_division=0
    )[:3]
    assert [row["val_precision"], row["val_recall"], row["val_f1"]] == pytest.approx(mean)
    assert row["val_accuracy"] == pytest.approx(metrics.accuracy_score(labels, guesses))
    for index in range(len(NAMES)):
        precision, recall = kept["curves"][2 * index : 2 * index + 2]
        for place in (0, 10, 50, 93):
            taken = np.floor(probabilities[:, index] * (THRESHOLDS - 1) + 1e-9) >= place
            assert precision[place] == pytest.approx(
                metrics.precision_score(labels == index, taken, zero_division=1), abs=1e-5
            )
            assert recall[place] == pytest.approx(
                metrics.recall_score(labels == index, taken), abs=1e-5
            )


def test_the_number_of_ranks_changes_no_count(cases: dict[str, Case]) -> None:
    """As long as the weights are the same: in a few steps they are, to the last counts."""
    one, three = (cases[str(world)].attempt.evaluation() for world in WORLDS)
    assert one["confusion"] == three["confusion"] and one["scores"] == three["scores"]


def test_a_rank_without_samples_is_no_trouble(cases: dict[str, Case]) -> None:
    kept = cases["fewer samples than ranks"].attempt.evaluation()
    assert sum(map(sum, kept["confusion"])) == 2


def test_any_of_them_can_decide_which_epoch_is_the_best(cases: dict[str, Case]) -> None:
    assert cases["best by f1"].end["best"]["metric"] == "val_f1"


def test_pictures_weights_and_layers_are_kept(cases: dict[str, Case]) -> None:
    kept = cases["3"].attempt.evaluation()
    assert base64.b64decode(kept["samples"]).startswith(SIGNATURE)
    assert [row["name"] for row in kept["weights"]] == ["0.weight", "0.bias", "2.weight", "2.bias"]
    assert sum(kept["weights"][0]["counts"]) == 6 * 16
    assert kept["model"][-1] == "in all: 163 parameters"


def test_lines_stay_short(cases: dict[str, Case]) -> None:
    lines = [line for line in cases["1"].log(0).splitlines() if line.startswith("epoch=")]
    assert "val_accuracy=" in lines[0] and "val_f1" not in lines[0]
