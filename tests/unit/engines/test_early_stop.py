"""`patience` and `min_delta`: when a training ends because it does not improve."""

import pytest

from rampup.core.settings import Settings
from rampup.engines import parts
from rampup.runtime.job import Best


def last_epoch(
    values: list[float], patience: int | None, min_delta: float = 0.0, lower: bool = True
) -> int:
    """Return the epoch after which a training with these values ends."""
    rule = parts.EarlyStop(Settings({"patience": patience, "min_delta": min_delta}), lower)
    best: Best | None = None
    for epoch, value in enumerate(values, 1):
        if (best is None and value == value) or (
            best is not None and parts.is_better(value, best.value, lower)
        ):
            best = rule.mark(Best("val_mae", value, epoch, epoch * 10), best)
        if rule.is_due(best, epoch):
            return epoch
        # what a checkpoint keeps is enough to continue
        best = parts.best_from_record(parts.best_to_record(best))
    return len(values)


def test_it_ends_after_so_many_epochs_without_a_better_value() -> None:
    values = [0.5, 0.4, 0.45, 0.41, 0.39, 0.5, 0.5, 0.5, 0.5]
    assert last_epoch(values, 3) == 8
    assert last_epoch(values, 2) == 4
    assert last_epoch(values, None) == 9


def test_a_larger_value_can_be_the_better_one() -> None:
    assert last_epoch([0.5, 0.6, 0.55, 0.55, 0.7], 2, lower=False) == 4


def test_small_steps_do_not_count_until_they_add_up() -> None:
    creeping = [1.0 - 0.01 * epoch for epoch in range(10)]
    assert last_epoch(creeping, 3, min_delta=0.05) == 4
    assert last_epoch(creeping, 6, min_delta=0.05) == 10


def test_a_run_of_nan_ends() -> None:
    assert last_epoch([float("nan")] * 5, 3) == 3


def test_a_run_without_patience_has_the_record_of_before() -> None:
    record = parts.best_to_record(Best("val_mae", 0.5, 1, 10))
    assert record == {"metric": "val_mae", "value": 0.5, "epoch": 1, "step": 10}
    assert parts.best_from_record(record) == Best("val_mae", 0.5, 1, 10)


@pytest.mark.parametrize("min_delta", [0.0, 0.1])
def test_the_line_says_since_when(min_delta: float) -> None:
    rule = parts.EarlyStop(Settings({"patience": 2, "min_delta": min_delta}), True)
    best = rule.mark(Best("val_mae", 0.5, 7, 70), None)
    assert "since epoch 7" in rule.describe(best, "val_mae")
