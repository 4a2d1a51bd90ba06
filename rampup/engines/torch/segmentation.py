"""A task that gives each pixel of a map a class, and how well it does: intersection over union.

A recipe subclasses Segmenter as it subclasses Classifier. Its score is the mean over the samples of
the IoU of each sample, so it is a sum that any number of ranks can add up. A class that is in
neither the prediction nor the truth of a sample counts as 1 there; so what a class is worth where it
is present is counted beside it, and so is the IoU of all pixels of the validation as one map.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from rampup.engines.torch.task import Task

PIXELS, PRESENT, PRESENT_IOU = "pixels", "present", "present_iou"
"""Names of sums that are not metrics themselves."""


class Segmenter(Task):
    """A task whose batches are (maps, labels), and whose model gives scores for every pixel."""

    classes: tuple[str, ...]
    """The names of the classes, in the order of the labels."""
    class_weights: tuple[float, ...] | None = None
    """How much a pixel of each class counts in the loss; None: all the same."""

    def scores(self, model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
        """Return scores of shape (samples, classes, height, width), and the correct classes."""
        maps, labels = batch
        return model(maps), labels

    def losses(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of each sample: the mean over its pixels of the weighted cross
        entropy."""
        weights = None
        if self.class_weights is not None:
            weights = torch.tensor(self.class_weights, dtype=scores.dtype, device=scores.device)
        return cross_entropy(scores, labels, weights, reduction="none").mean((1, 2))

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        return self.losses(*self.scores(model, batch)).mean()

    def evaluate(self, model: nn.Module, batch: Any) -> Mapping[str, Tensor]:
        return self.sums(*self.scores(model, batch))

    def sums(self, scores: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """Return what is added up over the validation data."""
        pixels = count_pixels(scores.argmax(1), labels, len(self.classes))
        iou = iou_of(pixels)
        present = (pixels.sum(2) > 0).double()
        return {
            "loss": self.losses(scores.float(), labels).double().sum(),
            "iou": iou.mean(1).sum(),
            **{f"iou_{name}": iou[:, index].sum() for index, name in enumerate(self.classes)},
            PRESENT: present.sum(0),
            PRESENT_IOU: (iou * present).sum(0),
            PIXELS: pixels.sum(0),
        }

    def metrics(self, sums: Mapping[str, Tensor], samples: int) -> dict[str, float]:
        """Return the IoU, and beside it that of each class, also over the samples that have it."""
        of_samples = {
            name: total
            for name, total in sums.items()
            if name not in (PIXELS, PRESENT, PRESENT_IOU)
        }
        found = dict(super().metrics(of_samples, samples))
        where = sums[PRESENT_IOU] / sums[PRESENT]  # NaN for a class that no sample has
        for index, name in enumerate(self.classes[1:], 1):
            found[f"iou_{name}_present"] = where[index].item()
        classes = len(self.classes)
        found["iou_pixels"] = iou_of(sums[PIXELS].view(1, classes, classes)).mean().item()
        return found

    def pictures(self, batch: Any) -> Tensor | None:
        """Return the maps as people see them, or None: bytes of shape (samples, height, width)."""
        return None


def count_pixels(predicted: Tensor, labels: Tensor, classes: int) -> Tensor:
    """Return for each sample how many pixels of each true class got each predicted one."""
    samples = len(labels)
    first = torch.arange(samples, device=labels.device).view(-1, 1, 1) * classes * classes
    cells = (first + labels * classes + predicted).flatten()
    counts = torch.bincount(cells, minlength=samples * classes * classes)
    return counts.view(samples, classes, classes).double()


def iou_of(pixels: Tensor) -> Tensor:
    """Return the IoU of each class for each sample, 1 where the class is nowhere."""
    both = pixels.diagonal(dim1=1, dim2=2)
    either = pixels.sum(1) + pixels.sum(2) - both
    return torch.where(either > 0, both / either.clamp(min=1), torch.ones_like(both))
