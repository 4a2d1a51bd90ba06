"""The numbers of metric rows, and the names that trackers show them by. Every tracker asks here, so
that all of them agree.

At the end of an epoch a row holds the mean over the epoch, under the name that the rows in between
use for single steps: `train_loss`. In one curve the two would make a zigzag, so the mean is always
called `train_loss_epoch`. The name depends only on the row itself: it is the same in every tracker,
live or exported, before and after a resume. Nothing here reads or writes a file.
"""

import math
from collections.abc import Mapping
from typing import Any

LARGEST = 1e15
NUMBERS = (int, float)
PLACE = ("step", "t")
"""The keys that say where a row belongs. All others are measurements."""
LOWER = ("mae", "mse", "rmse", "mape", "msle", "perplexity")
"""Short names of errors, as they stand between underscores."""
AT_EPOCH_ENDS = ("epoch", "samples_s")
"""A row that has both is about a whole epoch."""


def name_numbers(row: Mapping[str, Any]) -> list[tuple[str, float]]:
    """Return the measurements of a row. A null stands for a value that was not finite and becomes
    NaN; text is left out."""
    is_epoch_end = all(name in row for name in AT_EPOCH_ENDS)
    found = []
    for name, value in row.items():
        if name in PLACE or not is_number_or_null(value):
            continue
        if is_epoch_end and name.startswith("train_"):
            name = f"{name}_epoch"
        found.append((name, to_float(value)))
    return found


def is_number_or_null(value: Any) -> bool:
    return value is None or isinstance(value, int | float)


def is_number(value: Any) -> bool:
    """Return whether a value is a finite number of a size that any reader can take."""
    if not isinstance(value, NUMBERS) or isinstance(value, bool):
        return False
    return -LARGEST < value < LARGEST  # not so for NaN


def to_float(value: int | float | None) -> float:
    if value is None:
        return math.nan
    try:
        return float(value)
    except OverflowError:  # an int of Python can be larger than any float
        return math.inf if value > 0 else -math.inf


def get_step(row: Mapping[str, Any]) -> int | None:
    """Return the step of a row; None where the user's loop wrote something that no tracker
    takes."""
    step = row.get("step")
    if step is None or not is_number(step) or step != int(step):
        return None
    return int(step)


def lower_is_better(monitor: str, mode: str) -> bool:
    """Return whether the smaller value of a metric wins; `auto` decides by the metric's name."""
    if mode != "auto":
        return mode == "min"
    words = monitor.lower().split("_")
    return any(word in monitor for word in ("loss", "error", "epoch_s")) or any(
        word in words for word in LOWER
    )


def progress_of(beat: Mapping[str, Any]) -> tuple[float | None, float | None]:
    """Return what is done and what there is to do, by a heartbeat: in steps, or in epochs where only
    their number is known."""
    for done, total in (("step", "steps"), ("epoch", "epochs")):
        if is_number(beat.get(done)) and is_number(beat.get(total)) and beat[total] > 0:
            return beat[done], beat[total]
    return (beat["step"] if is_number(beat.get("step")) else None), None


def share_done(beat: Mapping[str, Any]) -> float | None:
    """Return how much of a run is done, 0 to 1; None where its length is not known."""
    done, total = progress_of(beat)
    return min(1.0, done / total) if done is not None and total is not None else None
