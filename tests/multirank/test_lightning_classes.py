"""Classes, pictures and weights under Lightning, of recipes and of modules that know nothing of
rampup, against scikit-learn on all samples; and workers of a loader, whose random numbers do not
depend on how many they are."""

import base64
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn import metrics

from rampup.core.png import SIGNATURE
from rampup.engines.classes import THRESHOLDS

from .lightning_cases import FOREIGN, Case, equal, started

NET = ("small_pictures:SmallPictures", "max_epochs=2", "enable_model_summary=false")
NAMES = ["cat", "dog", "cow"]
CLASSES = f"classes={','.join(NAMES)}"
SIZE = 211
"""A prime: no number of ranks divides it."""
WORLDS = (1, 3)
OWN = (
    "own_callbacks:OwnCallbacks",
    "data=own_callbacks:Points",
    "max_epochs=1",
    "enable_model_summary=false",
)
IMPOSSIBLE = {
    "without forward": ((*OWN, "classes=3"), "OwnCallbacks has no forward()"),
    "another number": ((*NET, "classes=5"), "`classes` names 5"),
    "other batches": (("small_pictures:Named", *NET[1:], CLASSES), "is a dict"),
    "without validation": (
        ("streaming:Streaming", "max_epochs=1", CLASSES),
        "there is no validation",
    ),
}


def wanted(root: Path) -> dict[str, Case]:
    words: dict[str, tuple[tuple[str, ...], tuple[int, ...]]] = {}
    for world in WORLDS:
        words[f"net-{world}"] = ((*NET, CLASSES), (world,))
        words[f"digits-{world}"] = (("digits", "engine=lightning", "epochs=2"), (world,))
    words["probabilities"] = (("small_pictures:Probabilities", *NET[1:], CLASSES), (1,))
    words["plain"] = (NET, (1,))
    words["fewer samples than ranks"] = ((*NET, CLASSES, "validation=2"), (3,))
    words["limited"] = ((*NET, CLASSES, "limit_val_batches=2"), (2,))
    for workers in (2, 3):
        words[f"workers-{workers}"] = ((*NET, f"num_workers={workers}"), (1,))
    words |= {
        name: (asked, (2 if name == "another number" else 1,))
        for name, (asked, _) in IMPOSSIBLE.items()
    }
    cases = {name: Case(root / name.replace(" ", "-"), *asked) for name, asked in words.items()}
    cases["workers-stopped"] = Case(
        root / "stopped", (*NET, "num_workers=2"), (1, 1), asked_after=27
    )
    return cases


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Case]:
    base = tmp_path_factory.getbasetemp()
    root = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "lightning-classes"
    return started(root, wanted(root))


def said(name: str, case: Case) -> tuple[np.ndarray, np.ndarray]:
    """Labels and probabilities of all validation samples, by the weights of the last checkpoint."""
    import torch

    weights = case.state()["state_dict"]
    if name.startswith("digits"):
        from rampup.core.settings import Settings
        from rampup.recipes.digits.train import Digits

        x, y = Digits(Settings({})).data()[1].tensors
        first, last, prefix = "0", "2", "model"
    else:
        sys.path.insert(0, str(FOREIGN))
        from small_pictures import Pictures

        x, y = (
            torch.stack(part)
            for part in zip(
                *((x, torch.tensor(y)) for x, y in Pictures(SIZE, 2, False)), strict=True
            )
        )
        first, last, prefix = "1", "4", "layers"
    hidden = torch.relu(
        x.flatten(1) @ weights[f"{prefix}.{first}.weight"].T + weights[f"{prefix}.{first}.bias"]
    )
    scores = hidden @ weights[f"{prefix}.{last}.weight"].T + weights[f"{prefix}.{last}.bias"]
    return y.numpy(), scores.softmax(1).numpy()


@pytest.mark.parametrize("name", ["net-1", "net-3", "digits-1", "digits-3", "probabilities"])
def test_they_are_those_of_scikit_learn(cases: dict[str, Case], name: str) -> None:
    case = cases[name]
    assert set(case.codes) == {0}, case.log()
    labels, probabilities = said(name, case)
    guesses = probabilities.argmax(1)
    kept = case.last.evaluation()
    assert (kept["step"], kept["epoch"]) == (case.end["step"], 2)
    assert kept["classes"] == (list("0123456789") if name.startswith("digits") else NAMES)
    assert kept["confusion"] == metrics.confusion_matrix(labels, guesses).tolist()
    each = np.stack(metrics.precision_recall_fscore_support(labels, guesses, zero_division=0), 1)
    np.testing.assert_allclose(kept["scores"], each, atol=1e-6)
    row = case.end["metrics"]
    mean = metrics.precision_recall_fscore_support(
        labels, guesses, average="macro", zero_division=0
    )[:3]
    assert [row["val_precision"], row["val_recall"], row["val_f1"]] == pytest.approx(mean)
    assert row["val_accuracy"] == pytest.approx(metrics.accuracy_score(labels, guesses))
    for index in range(len(kept["classes"])):
        precision, recall = kept["curves"][2 * index : 2 * index + 2]
        for place in (0, 10, 50, 93):
            taken = (
                np.floor(probabilities[:, index].astype(float) * (THRESHOLDS - 1) + 1e-9) >= place
            )
            assert precision[place] == pytest.approx(
                metrics.precision_score(labels == index, taken, zero_division=1), abs=1e-5
            )
            assert recall[place] == pytest.approx(
                metrics.recall_score(labels == index, taken), abs=1e-5
            )


@pytest.mark.parametrize(
    ("name", "tensor", "size"), [("net-3", "layers.1.weight", 12 * 16), ("digits-3", "2.bias", 10)]
)
def test_pictures_weights_and_layers_are_kept(
    cases: dict[str, Case], name: str, tensor: str, size: int
) -> None:
    kept = cases[name].last.evaluation()
    assert base64.b64decode(kept["samples"]).startswith(SIGNATURE)
    assert {row["name"]: sum(row["counts"]) for row in kept["weights"]}[tensor] == size
    assert kept["model"][-1].startswith("in all: ")


@pytest.mark.parametrize(("name", "layer"), [("net-3", "layers/1"), ("digits-3", "0")])
def test_tensorboard_has_them_too(cases: dict[str, Case], name: str, layer: str) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(
        str(cases[name].run.tensorboard), size_guidance={"tensors": 0, "images": 0}
    )
    found.Reload()
    tags = found.Tags()
    assert layer in {node.name for node in graph_in(found)}
    names = set(tags["tensors"]) | set(tags["images"])
    assert {"samples", "confusion", "val_f1", "val_accuracy"} <= names | set(tags["scalars"])
    assert len([tag for tag in names if tag.startswith("pr/")]) == len(
        cases[name].last.evaluation()["classes"]
    )
    assert any(tag.startswith("weights/") for tag in (*names, *tags["histograms"]))


def graph_in(events: Any) -> Any:
    from tensorboard.compat.proto.graph_pb2 import GraphDef

    graph = events.Graph()
    return (graph if isinstance(graph, GraphDef) else GraphDef.FromString(graph)).node


def test_a_module_that_names_no_classes_shows_its_weights_alone(cases: dict[str, Case]) -> None:
    kept = cases["plain"].last.evaluation()
    assert "confusion" not in kept and len(kept["weights"]) == 4
    assert "val_f1" not in cases["plain"].end["metrics"]
    assert "note" not in cases["plain"].log()
    stream = cases["without validation"].last.evaluation()
    assert (stream["epoch"], len(stream["weights"])) == (1, 4)


def test_counting_classes_does_not_change_the_training(cases: dict[str, Case]) -> None:
    assert equal(cases["net-1"].state()["state_dict"], cases["plain"].state()["state_dict"])
    assert equal(
        cases["net-1"].state()["optimizer_states"], cases["plain"].state()["optimizer_states"]
    )


def test_each_sample_counts_once(cases: dict[str, Case]) -> None:
    samples = {
        name: sum(map(sum, cases[name].last.evaluation()["confusion"]))
        for name in ("net-3", "limited")
    }
    assert samples == {"net-3": SIZE, "limited": 2 * 2 * 30}
    assert sum(map(sum, cases["fewer samples than ranks"].last.evaluation()["confusion"])) == 2


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_what_can_not_be_counted_is_said_once_and_the_run_goes_on(
    cases: dict[str, Case], name: str
) -> None:
    case, words = cases[name], IMPOSSIBLE[name][1]
    assert set(case.codes) == {0} and case.end["step"] > 0
    log = case.last.rank_log(0).read_text()
    assert log.count("classes can't be counted") == 1 and words in log, log
    assert "confusion" not in case.last.evaluation()


def test_lines_stay_short(cases: dict[str, Case]) -> None:
    for name in ("net-1", "digits-1"):
        (line, *_) = [line for line in cases[name].log().splitlines() if line.startswith("epoch=")]
        assert "val_accuracy=" in line and "val_f1" not in line


def test_workers_draw_the_same_random_numbers_whatever_their_number(cases: dict[str, Case]) -> None:
    two, three, none = (
        cases[name].state()["state_dict"] for name in ("workers-2", "workers-3", "plain")
    )
    assert equal(two, three)
    assert not equal(two, none), (
        "without workers the samples draw from the rank's own random numbers"
    )


def test_an_epoch_with_workers_is_taken_up_in_its_middle_bit_for_bit(
    cases: dict[str, Case],
) -> None:
    case, whole = cases["workers-stopped"], cases["workers-2"]
    assert case.run.attempt(1).event("stopped")["step"] == 27 < case.end["step"], case.log()
    assert case.last.event("resumed")["exact"] is True
    assert equal(case.state()["state_dict"], whole.state()["state_dict"])
    assert case.rows() == whole.rows()


def test_how_the_data_is_read_is_told(cases: dict[str, Case]) -> None:
    found: Any = cases["workers-2"].last.event("loaders")
    assert (found["workers"], found["persistent_workers"], found["pin_memory"]) == (2, True, False)
    assert (
        "data loading: 2 workers, persistent, 1 CPU for each rank, num_workers=2"
        in cases["workers-2"].log()
    )
    assert (
        "data loading: no workers, 1 CPU for each rank, as the module sets it\n"
        in cases["plain"].log()
    )
    assert "data loading" not in cases["digits-1"].log()
