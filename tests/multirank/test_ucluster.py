"""UCluster on one and several ranks: the same training across the switch of losses, from numbers of
jets that do not divide, and equal bit for bit when it is resumed.

The defects of the notebook, each with the tests that fail where rampup has it. Those without a file
are here; recipe/ is tests/unit/recipes/test_ucluster.py.

1. alpha never changes: recipe/alpha_grows
2. rate, decay and summaries follow a counter that stays 0: recipe/the_statistics_follow,
   steps_by_samples in tests/unit/engines/test_schedule.py, one_rank_writes
3. ranks start from different weights, a restore is lost: ranks_agree, stopped_around_the_switch
4. every rank writes checkpoints, nothing resumes: one_rank_writes, stopped_around_the_switch
5. k-means on each rank, without a seed, in training mode: all_ranks_begin, the_fit_sees,
   recipe/start_clusters_come_from_a_seed
6. parts of unequal length: ranks_agree; 103 jets divide by neither 2 nor 3
7. the last batch is dropped: ranks_agree counts 7 steps, the_report_gets counts 23 jets
8. sums divided by the batches of one file: ranks_agree; 23 jets in batches of 9 differ by ranks
9. a matching for each batch: recipe/clusters_are_matched_once, recipe/counts_of_two_ranks
10. no shuffling: the_same_global_batches in tests/multirank/test_keras.py
11. the rate times the ranks: ranks_agree
12. one more epoch of pre-training: pretraining_takes_exactly
13. each rank copies the data, and fails where the copy exists: all cases read one file, at once
14. copies of the model fail silently: recipe/the_recipe_and_its_settings, and
    every_attempt_runs_the_code in tests/unit/runs/test_snapshot.py
15. an empty picture, written by each rank: one_rank_writes, tests/unit/engines/test_clusters.py
16. max_dim has no effect, a mean is called maximum: recipe/the_embedding_has, the_embedding_is;
    angles wrapped at 2 pi, a row without a label: tests/unit/datasets/test_jets.py
"""

import json
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from jet_sets import make_jet_file
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from rampup.config.recipes import load

from .conftest import Case, Start
from .test_keras import furthest

pytestmark = pytest.mark.skipif(
    find_spec("tf_keras") is None, reason="it needs pip install 'rampup[keras]'"
)

JETS = 163
"""103 of them to train on, 23 for the validation, 37 in the third part."""
STEPS = 7
"""In an epoch of 103 jets in batches of 16; the last has 7."""
EPOCHS, PRETRAINED = 3, 2
SMALL: dict[str, Any] = {
    "engine": "keras",
    "entry": "jets:Watched",
    "epochs": EPOCHS,
    "pretrain_epochs": PRETRAINED,
    "batch_size": 16,
    "eval_batch_size": 9,
    "statistics_samples": 50,
    "points": 12,
    "k": 3,
    "attention_widths": [4, 8],
    "widths": [8, 8, 8, 8],
    "dense_widths": [8, 8],
    # Some gradients of this network are nothing but rounding: those of a bias before a normalisation
    # where ReLU clips nothing. Adam turns rounding into steps of full size, which no loss sees.
    "optimizer": "sgd",
    "lr": 0.001,
    "kmeans_weight": 1.0,
    "log_every": 1,
    "ends": [],
}
CASES: dict[str, dict[str, Any]] = {
    **{f"plain-{ranks}": {"world": ranks} for ranks in (1, 3)},
    "plain-2": {"world": 2, "entry": "jets:Counting"},
    # A signal is noticed in the next step. The first one comes in the middle of an epoch. The
    # second one lets its attempt fit the clusters, and the next one begins with the full loss.
    "stopped-1": {"world": 1, "attempts": (1, 1, 1), "ends": [2, STEPS * PRETRAINED - 4]},
}


@pytest.fixture(scope="module")
def cases(start: Start, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Case]:
    root = tmp_path_factory.mktemp("jets")
    data = str(make_jet_file(root / "jets.h5", JETS))
    defaults = {name: it.default for name, it in load("ucluster", root).settings.items()}
    found = start(
        {name: {**defaults, **SMALL, **case, "data": data} for name, case in CASES.items()}
    )
    for name, case in found.items():
        logs = [case.log(rank) for rank in range(case.worlds[-1])]
        assert set(case.codes) == {0}, f"{name}: {logs}"
    return found


def fits_of(case: Case) -> list[list[dict[str, Any]]]:
    """For each rank what it left after each epoch."""
    files = [case.run.path / f"fits-{rank}.jsonl" for rank in range(case.world)]
    return [[json.loads(line) for line in file.read_text().splitlines()] for file in files]


@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_agree_across_the_switch_of_losses(cases: dict[str, Case], ranks: int) -> None:
    """Also the statistics of batch normalisation, which are those of the whole batch."""
    one, several = cases["plain-1"], cases[f"plain-{ranks}"]
    assert several.end["metrics"]["step"] == EPOCHS * STEPS > 20
    assert furthest(one, several) < 1e-5
    for mine, theirs in zip(one.epochs(), several.epochs(), strict=True):
        for name in ("train_loss", "val_loss", "val_focal"):
            assert mine[name] == pytest.approx(theirs[name], abs=1e-4), name
        for name in ("val_bin_accuracy", "val_clustering_accuracy"):
            assert mine[name] == theirs[name]


def test_all_ranks_begin_with_the_same_start_clusters(cases: dict[str, Case]) -> None:
    """Fitted to the jets of all ranks, on one of them."""
    (one,) = fits_of(cases["plain-1"])
    for ranks in (2, 3):
        first, *others = fits_of(cases[f"plain-{ranks}"])
        assert all(other == first for other in others)
        np.testing.assert_allclose(first[1]["places"], one[1]["places"], atol=1e-5)


def test_the_fit_sees_statistics_of_the_weights_as_they_are(cases: dict[str, Case]) -> None:
    """Those of the training lag behind by many steps, and the notebook fits to them."""
    for ranks in (1, 2, 3):
        for rows in fits_of(cases[f"plain-{ranks}"]):
            assert max(row["lag"] for row in rows) < 1e-4


def test_pretraining_takes_exactly_its_epochs(cases: dict[str, Case]) -> None:
    (found,) = fits_of(cases["plain-1"])
    assert [row["fitted"] for row in found] == [False, True, False]
    assert not np.any(found[0]["places"])
    rows = cases["plain-1"].epochs()
    differences = [row["val_loss"] - row["val_focal"] for row in rows]
    assert differences[:2] == pytest.approx([0, 0], abs=1e-6) and differences[2] > 1e-3


def test_stopped_around_the_switch_it_ends_equal_bit_for_bit(cases: dict[str, Case]) -> None:
    whole, parts = cases["plain-1"], cases["stopped-1"]
    resumed = [parts.run.attempt(number).resume_step() for number in (2, 3)]
    assert resumed == [3, PRETRAINED * STEPS]
    (fits,) = fits_of(parts)
    assert [row["epoch"] for row in fits] == [1, 2, 3], "the clusters are not fitted again"
    one, other = whole.state(), parts.state()
    for part in ("model", "optimizer", "ranks"):
        for mine, theirs in zip(one[part], other[part], strict=True):
            assert mine.tobytes() == theirs.tobytes(), part
    assert whole.rows_without_times() == parts.rows_without_times()


def test_variables_of_a_task_are_in_the_checkpoint(cases: dict[str, Case]) -> None:
    assert [int(value) for value in cases["plain-2"].state()["task"]] == [EPOCHS]
    assert "task" not in cases["plain-1"].state()


def test_the_report_gets_the_embedding_and_where_the_loss_changed(cases: dict[str, Case]) -> None:
    found = cases["plain-2"].attempt.evaluation()
    assert found["switches"] == [{"step": PRETRAINED * STEPS, "label": "clustering loss"}]
    clusters = found["clusters"]
    assert clusters["metric"] == "val_clustering_accuracy"
    assert np.sum(clusters["pairs"]) == 23, "the validation jets of both ranks"
    assert len(clusters["truth"]) == len(clusters["points"]) == 12, "those of rank 0"


def test_one_rank_writes_and_every_step_has_its_number(cases: dict[str, Case]) -> None:
    """In the notebook all of them write, every summary is step 0, and the picture is empty."""
    case = cases["plain-2"]
    assert [row["step"] for row in case.epochs()] == [STEPS, 2 * STEPS, 3 * STEPS]
    (board,) = case.run.tensorboard.iterdir()
    events = EventAccumulator(str(board), size_guidance={"images": 0}).Reload()
    for name in ("embedding", "clusters"):
        assert [image.step for image in events.Images(name)] == [STEPS, 2 * STEPS, 3 * STEPS]
    assert {path.name for path in case.run.checkpoints.iterdir()} >= {f"step-{3 * STEPS}"}
    assert list(case.run.path.rglob("*.h5")) == [], "no rank copies the jets"


def test_the_third_part_is_counted_at_the_end(cases: dict[str, Case]) -> None:
    names = [
        row["name"] for row in cases["plain-2"].attempt.events() if row.get("what") == "result"
    ]
    assert names == ["third_clustering_accuracy", "third_bin_accuracy"]
