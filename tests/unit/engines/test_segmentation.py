"""Loss and IoU of a segmenter, against the definition counted pixel by pixel."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from rampup.core.settings import Settings
from rampup.engines.torch.segmentation import Segmenter
from rampup.recipes.deepcam.train import DeepCam

CLASSES = 3


class Maps(Segmenter):
    classes = ("background", "cyclone", "river")
    class_weights = (1.0, 3.0, 0.5)


class Fixed(nn.Module):
    def __init__(self, scores: Tensor) -> None:
        super().__init__()
        self.scores = scores

    def forward(self, maps: Tensor) -> Tensor:
        return self.scores[: len(maps)]


def draw(samples: int = 5) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(2)
    scores = torch.randn(samples, CLASSES, 4, 6, generator=generator)
    labels = torch.randint(CLASSES, (samples, 4, 6), generator=generator)
    labels[0] = 0  # without any object
    scores[0, 0] += 100
    labels[1][labels[1] == 2] = 0  # a class that is predicted, but not there
    return scores, labels


def score_by_hand(predicted: Any, labels: Any) -> list[float]:
    found = []
    for kind in range(CLASSES):
        both = either = 0
        for says, truth in zip(predicted, labels, strict=True):
            both += says == kind and truth == kind
            either += says == kind or truth == kind
        found.append(both / either if either else 1.0)
    return found


def test_iou_is_that_of_each_sample_averaged() -> None:
    task, (scores, labels) = Maps(Settings({})), draw()
    sums = task.evaluate(Fixed(scores), (torch.zeros(5, 1), labels))
    found = task.metrics(sums, 5)
    flat = zip(scores.argmax(1).flatten(1).tolist(), labels.flatten(1).tolist(), strict=True)
    wanted = [score_by_hand(*sample) for sample in flat]
    assert wanted[0] == [1.0, 1.0, 1.0], "absent classes count 1"
    assert found["iou"] == pytest.approx(sum(sum(row) / CLASSES for row in wanted) / 5)
    for index, name in enumerate(Maps.classes):
        assert found[f"iou_{name}"] == pytest.approx(sum(row[index] for row in wanted) / 5)
    has = [index for index in range(5) if bool((labels[index] == 2).any())]
    assert has != list(range(5))
    expected = sum(wanted[index][2] for index in has) / len(has)
    assert found["iou_river_present"] == pytest.approx(expected)
    everything = score_by_hand(scores.argmax(1).flatten().tolist(), labels.flatten().tolist())
    assert found["iou_pixels"] == pytest.approx(sum(everything) / CLASSES)
    assert found["iou_pixels"] != pytest.approx(found["iou"])


def test_sums_of_parts_are_the_sums_of_all() -> None:
    task, (scores, labels) = Maps(Settings({})), draw()
    whole = task.sums(scores, labels)
    parts = [task.sums(scores[low:high], labels[low:high]) for low, high in ((0, 2), (2, 5))]
    for name, total in whole.items():
        assert torch.allclose(parts[0][name] + parts[1][name], total, rtol=1e-6)


def test_the_loss_is_a_plain_mean_of_weighted_pixels() -> None:
    task, (scores, labels) = Maps(Settings({})), draw()
    negative = -scores.log_softmax(1)
    pixels = [
        Maps.class_weights[kind] * negative[index, kind, row, column]
        for index in range(5)
        for row in range(4)
        for column in range(6)
        for kind in [int(labels[index, row, column])]
    ]
    wanted = float(sum(pixels) / len(pixels))
    found = task.loss(Fixed(scores), (torch.zeros(5, 1), labels))
    assert float(found) == pytest.approx(wanted, rel=1e-5)
    assert float(task.sums(scores, labels)["loss"]) / 5 == pytest.approx(wanted, rel=1e-5)


def test_the_weights_of_deepcam() -> None:
    assert DeepCam.class_weights == pytest.approx((1.00173, 2.61461, 1.71642), abs=1e-5)


def test_a_class_that_no_sample_has_is_not_a_number() -> None:
    task = Maps(Settings({}))
    sums = task.sums(torch.zeros(2, 3, 4, 6), torch.zeros(2, 4, 6, dtype=torch.long))
    found = task.metrics(sums, 2)
    assert found["iou_cyclone_present"] != found["iou_cyclone_present"]
    assert found["iou_cyclone"] == 1.0
