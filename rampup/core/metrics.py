"""The numbers of metric rows under the names that trackers show them by. Every tracker asks here,
so that all agree.

At the end of an epoch a row holds the mean over the epoch, under the name that rows between have
for single steps: `train_loss`. On one line the two would be a zigzag, so the former is always
`train_loss_epoch`. What a row is called depends on nothing but the row: it is the same in every
tracker, live or exported, before and after a resume.
"""

import math
from collections.abc import Mapping
from typing import Any

from rampup.rundir import schema as shapes

PLACE = ("step", "t")
"""Where a row is, as against what was measured there."""
AT_EPOCH_ENDS = ("epoch", "samples_s")
"""A row that has both is about a whole epoch."""


def named_numbers(row: Mapping[str, Any]) -> list[tuple[str, float]]:
    """What was no finite number is recorded as null, and is NaN here; words are left out."""
    found = [
        (name, number(value))
        for name, value in row.items()
        if name not in PLACE and is_number(value)
    ]
    if all(name in row for name in AT_EPOCH_ENDS):
        return [
            (f"{name}_epoch" if name.startswith("train_") else name, value) for name, value in found
        ]
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
    """The step of a row; None where a user's own loop wrote something else there, or a number that
    no tracker takes."""
    step = row.get("step")
    return int(step) if step is not None and shapes.number(step) and step == int(step) else None
