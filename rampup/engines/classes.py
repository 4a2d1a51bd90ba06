"""How well a model distinguishes classes, from counts that add up over batches and ranks.

An engine adds up two tables over the whole validation set and makes a ClassCounts of them, from
which follow precision, recall, F1, the confusion matrix and PR curves. It never sees a sample and
never imports a framework.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

THRESHOLDS = 101
"""The points of a PR curve: probabilities 0, 0.01, ... 1. A sample belongs to the last one that it
reaches."""
MOST_CURVES = 25
"""The most classes that get a curve; nobody can distinguish more."""

Numbers = NDArray[np.float64]


class ClassCounts(NamedTuple):
    """The counts of one validation."""

    confusion: Numbers
    """The number of samples of each class (row) that were taken for each class (column)."""
    reached: Numbers
    """Numbers of samples in the shape (2, classes, THRESHOLDS).

    They count, for the samples of a class and for all others, those whose probability of that class
    is between a threshold and the next.
    """

    @property
    def support(self) -> Numbers:
        found: Numbers = self.confusion.sum(1)
        return found

    @property
    def precision(self) -> Numbers:
        """Return the part of what was taken for a class that is of it; 0 where nothing was."""
        return divide(self.confusion.diagonal(), self.confusion.sum(0))

    @property
    def recall(self) -> Numbers:
        """Return the part of a class that was found; 0 for a class without samples."""
        return divide(self.confusion.diagonal(), self.support)

    @property
    def f1(self) -> Numbers:
        return divide(2 * self.confusion.diagonal(), self.confusion.sum(0) + self.support)

    def means(self) -> dict[str, float]:
        """Return the means over the classes; each counts the same, however many samples it has."""
        values = {"precision": self.precision, "recall": self.recall, "f1": self.f1}
        return {name: float(value.mean()) for name, value in values.items()}

    def counts(self, index: int) -> Numbers:
        """Return true and false positives, true and false negatives of a class per threshold."""
        found, wrong = (np.cumsum(row[::-1])[::-1] for row in self.reached[:, index])
        return np.stack([found, wrong, wrong[0] - wrong, found[0] - found])

    def curve(self, index: int) -> tuple[Numbers, Numbers]:
        """Return precision and recall at each threshold; precision is 1 where nothing reaches it."""
        found, wrong, _, missed = self.counts(index)
        precision = np.where(found + wrong > 0, divide(found, found + wrong), 1.0)
        return precision, divide(found, found + missed)

    def table(self, names: tuple[str, ...]) -> str:
        """Return a table in Markdown."""
        rows = [
            f"| {name} | {precision:.4f} | {recall:.4f} | {f1:.4f} | {samples:.0f} |"
            for name, precision, recall, f1, samples in zip(
                names, self.precision, self.recall, self.f1, self.support, strict=True
            )
        ]
        head = ["| class | precision | recall | F1 | samples |", "|---|---|---|---|---|"]
        return "\n".join([*head, *rows])

    def record(self, names: tuple[str, ...]) -> dict[str, Any]:
        """Return what the attempt's evaluation.json holds.

        `scores` has precision, recall, F1 and the number of samples of each class; `curves` has two
        rows for each class: precision, recall.
        """
        scores = np.stack([self.precision, self.recall, self.f1, self.support], 1)
        curves = [row for index in range(min(len(names), MOST_CURVES)) for row in self.curve(index)]
        return {
            "classes": list(names),
            "confusion": self.confusion.astype(int).tolist(),
            "scores": scores.round(6).tolist(),
            "curves": [[round(value, 5) for value in row.tolist()] for row in curves],
        }


def divide(part: Numbers, whole: Numbers) -> Numbers:
    """Divide, with 0 where the whole is 0."""
    return np.divide(part, whole, out=np.zeros_like(part), where=whole > 0)
