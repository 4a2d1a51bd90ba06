"""The numbers of metric rows under the names that trackers show them by. Every tracker asks here, so that all agree.

At the end of an epoch a row holds the mean over the epoch, under the name that rows between have for single steps:
`train_loss`. On one line the two would be a zigzag, so the former becomes `train_loss_epoch` where there are both.
"""

import math
from collections.abc import Mapping
from typing import Any

PLACE = ("step", "t")
"""Where a row is, as against what was measured there."""
AT_EPOCH_ENDS = "samples_s"


class Points:
    """Of one run or attempt; to be asked row after row."""

    def __init__(self) -> None:
        self._between: set[str] = set()

    def of(self, row: Mapping[str, Any]) -> list[tuple[str, float]]:
        """Names and numbers. What was no finite number is recorded as null, and is NaN here; words are left out."""
        found = [(name, number(value)) for name, value in row.items() if name not in PLACE and is_number(value)]
        if AT_EPOCH_ENDS in row:
            return [(f"{name}_epoch" if name in self._between else name, value) for name, value in found]
        self._between.update(name for name, _ in found if name.startswith("train_"))
        return found


def is_number(value: Any) -> bool:
    return value is None or isinstance(value, int | float)


def number(value: int | float | None) -> float:
    if value is None:
        return math.nan
    try:
        return float(value)
    except OverflowError:  # Python's whole numbers have no end
        return math.inf if value > 0 else -math.inf


def step_of(row: Mapping[str, Any]) -> int | None:
    """The step of a row; None where a user's own loop wrote something else there."""
    step = row.get("step")
    if isinstance(step, float) and step.is_integer():
        return int(step)
    return step if isinstance(step, int) and abs(step) < 2**63 else None
