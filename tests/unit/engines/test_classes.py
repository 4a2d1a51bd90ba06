"""What is told of classes, from counts, against what scikit-learn says of the single samples."""

import numpy as np
import pytest
import torch
from sklearn import metrics

from rampup.engines.classes import MOST_CURVES, THRESHOLDS, ClassCounts
from rampup.engines.torch.evaluation import CONFUSION, REACHED, class_tables
from rampup.errors import RampupError

CLASSES = 7
NAMES = tuple("abcdefg")


def samples(count: int = 2003) -> tuple[torch.Tensor, torch.Tensor]:
    """Scores that are right about two times in three; the last class is never the truth."""
    random = torch.Generator().manual_seed(5)
    labels = torch.randint(0, CLASSES - 1, (count,), generator=random)
    scores = torch.randn(count, CLASSES, generator=random)
    scores[torch.arange(count), labels] += 1.7
    return scores, labels


def counted(scores: torch.Tensor, labels: torch.Tensor, pieces: int = 1) -> ClassCounts:
    """Added up over so many pieces, as over batches and ranks."""
    parts = zip(scores.tensor_split(pieces), labels.tensor_split(pieces), strict=True)
    tables = [class_tables(some, truth, scores.shape[1]) for some, truth in parts]
    classes = scores.shape[1]
    confusion, reached = (sum(table[name] for table in tables) for name in (CONFUSION, REACHED))
    assert isinstance(confusion, torch.Tensor) and isinstance(reached, torch.Tensor)
    return ClassCounts(
        confusion.view(classes, classes).double().numpy(),
        reached.view(2, classes, THRESHOLDS).double().numpy(),
    )


@pytest.mark.parametrize("pieces", [1, 3, 50])
def test_precision_recall_f1_and_confusion_are_those_of_scikit_learn(pieces: int) -> None:
    scores, labels = samples()
    counts = counted(scores, labels, pieces)
    said, known = scores.argmax(1).numpy(), labels.numpy()
    assert np.array_equal(
        counts.confusion, metrics.confusion_matrix(known, said, labels=range(CLASSES))
    )
    expected = metrics.precision_recall_fscore_support(
        known, said, labels=range(CLASSES), zero_division=0
    )
    for found, wanted in zip(
        (counts.precision, counts.recall, counts.f1, counts.support), expected, strict=True
    ):
        np.testing.assert_allclose(found, wanted, atol=1e-12)
    mean = metrics.precision_recall_fscore_support(
        known, said, labels=range(CLASSES), zero_division=0, average="macro"
    )
    assert list(counts.means().values()) == pytest.approx(mean[:3])
    assert counts.support[-1] == 0 and counts.recall[-1] == 0 and counts.f1[-1] == 0


def test_pr_curves_are_those_of_scikit_learn() -> None:
    scores, labels = samples()
    counts = counted(scores, labels, 3)
    probability = scores.softmax(1).double().numpy()
    for index in (0, 4):
        truth = labels.numpy() == index
        precision, recall = counts.curve(index)
        for place in (0, 1, 29, 50, 57, 58, 90, 100):
            said = np.floor(probability[:, index] * (THRESHOLDS - 1)) >= place
            assert precision[place] == pytest.approx(
                metrics.precision_score(truth, said, zero_division=1)
            )
            assert recall[place] == pytest.approx(metrics.recall_score(truth, said))
        area = float(
            np.sum((recall[:-1] - recall[1:]) * precision[:-1]) + recall[-1] * precision[-1]
        )
        assert area == pytest.approx(
            metrics.average_precision_score(truth, probability[:, index]), abs=0.01
        )
        found, wrong, rejected, missed = counts.counts(index)
        assert set(found + missed) == {truth.sum()} and set(wrong + rejected) == {(~truth).sum()}


def test_scores_that_are_no_numbers_are_still_counted() -> None:
    scores, labels = samples(10)
    scores[3] = float("nan")
    scores[4, 2] = float("inf")
    counts = counted(scores, labels)
    assert counts.confusion.sum() == 10 and counts.reached.sum() == 10 * CLASSES


def test_what_does_not_fit_the_names_is_refused() -> None:
    scores, labels = samples(10)
    with pytest.raises(RampupError, match=r"shape \(10, 7\), but `classes` names 5") as caught:
        class_tables(scores, labels, 5)
    assert "one score for each class" in caught.value.hint
    for wrong in (7, -1):
        with pytest.raises(RampupError, match=f"there is a label {wrong}, but `classes` names 7"):
            class_tables(scores, torch.where(torch.arange(10) == 2, wrong, labels), CLASSES)


def test_what_is_kept_for_readers() -> None:
    counts = counted(*samples())
    record = counts.record(NAMES)
    assert record["classes"] == list(NAMES) and len(record["curves"]) == 2 * CLASSES
    assert record["scores"][1] == pytest.approx(
        [counts.precision[1], counts.recall[1], counts.f1[1], counts.support[1]], abs=1e-6
    )
    assert sum(map(sum, record["confusion"])) == 2003
    many = ClassCounts(np.zeros((40, 40)), np.zeros((2, 40, THRESHOLDS)))
    assert len(many.record(tuple(map(str, range(40))))["curves"]) == 2 * MOST_CURVES
    lines = counts.table(NAMES).splitlines()
    assert len(lines) == 2 + CLASSES and lines[2].startswith("| a | 0.")
