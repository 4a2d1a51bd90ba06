"""How well classes are told apart, from counts that add up: over batches, over ranks, in any order.

An engine adds up two tables over the whole validation set and makes a ClassCounts of them; all that
people look at follows from it: precision, recall, F1, confusion matrix, PR curves. Framework-free,
and it never sees a sample.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

THRESHOLDS = 101
"""Of a PR curve: probabilities 0, 0.01, ... 1. A sample belongs to the last one that it reaches."""
MOST_CURVES = 25
"""Classes with a curve of their own; more than that nobody can tell apart."""

Numbers = NDArray[np.float64]


class ClassCounts(NamedTuple):
    confusion: Numbers
    """How many of each class (row) were taken for each class (column)."""
    reached: Numbers
    """(2, classes, THRESHOLDS): of the samples of a class, and of all others, how many have their
    probability of that class between a threshold and the next."""

    @property
    def support(self) -> Numbers:
        found: Numbers = self.confusion.sum(1)
        return found

    @property
    def precision(self) -> Numbers:
        """Of what was taken for a class, the part that is of it. 0 where nothing was."""
        return divided(self.confusion.diagonal(), self.confusion.sum(0))

    @property
    def recall(self) -> Numbers:
        """Of a class, the part that was found. 0 where there is none."""
        return divided(self.confusion.diagonal(), self.support)

    @property
    def f1(self) -> Numbers:
        return divided(2 * self.confusion.diagonal(), self.confusion.sum(0) + self.support)

    def means(self) -> dict[str, float]:
        """Over the classes, each counting the same however many samples it has."""
        values = {"precision": self.precision, "recall": self.recall, "f1": self.f1}
        return {name: float(value.mean()) for name, value in values.items()}

    def counts(self, index: int) -> Numbers:
        """(4, THRESHOLDS): true positives, false positives, true negatives, false negatives of a
        class."""
        found, wrong = (np.cumsum(row[::-1])[::-1] for row in self.reached[:, index])
        return np.stack([found, wrong, wrong[0] - wrong, found[0] - found])

    def curve(self, index: int) -> tuple[Numbers, Numbers]:
        """Precision and recall at each threshold; precision is 1 where nothing reaches it."""
        found, wrong, _, missed = self.counts(index)
        return np.where(found + wrong > 0, divided(found, found + wrong), 1.0), divided(
            found, found + missed
        )

    def table(self, names: tuple[str, ...]) -> str:
        """For people, as Markdown."""
        rows = [
            f"| {name} | {precision:.4f} | {recall:.4f} | {f1:.4f} | {samples:.0f} |"
            for name, precision, recall, f1, samples in zip(
                names, self.precision, self.recall, self.f1, self.support, strict=True
            )
        ]
        return "\n".join(
            ["| class | precision | recall | F1 | samples |", "|---|---|---|---|---|", *rows]
        )

    def record(self, names: tuple[str, ...]) -> dict[str, Any]:
        """For the file that readers get. `scores` has for each class precision, recall, F1 and the
        number of samples; `curves` two rows for each: precision, recall."""
        curves = [row for index in range(min(len(names), MOST_CURVES)) for row in self.curve(index)]
        return {
            "classes": list(names),
            "confusion": self.confusion.astype(int).tolist(),
            "scores": np.stack([self.precision, self.recall, self.f1, self.support], 1)
            .round(6)
            .tolist(),
            "curves": [[round(value, 5) for value in row.tolist()] for row in curves],
        }


def divided(part: Numbers, whole: Numbers) -> Numbers:
    """0 where the whole is 0."""
    return np.divide(part, whole, out=np.zeros_like(part), where=whole > 0)
