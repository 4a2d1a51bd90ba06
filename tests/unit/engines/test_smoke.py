"""The second attempt of a smoke test must find what the first one saved."""

from types import SimpleNamespace
from typing import Any

import pytest

from rampup.engines import parts
from rampup.errors import RampupError


def find(step: int, attempt: int, smoke: bool) -> int:
    """Return the step from which an attempt continues, where the newest checkpoint is of `step`."""
    newest = SimpleNamespace(step=step) if step >= 0 else None
    store = SimpleNamespace(take_over=lambda: None, latest=lambda: newest)
    context = SimpleNamespace(attempt=attempt)
    job: Any = SimpleNamespace(checkpoints=store, context=context, smoke=smoke)
    world: Any = SimpleNamespace(rank=0, agree=lambda number: number)
    return parts.agree_on_checkpoint(job, world)[0]


def test_a_second_attempt_without_a_checkpoint_fails() -> None:
    with pytest.raises(RampupError, match="found no checkpoint of the first"):
        find(-1, attempt=2, smoke=True)
    assert find(1, attempt=2, smoke=True) == 1
    assert find(-1, attempt=1, smoke=True) == -1
    assert find(-1, attempt=2, smoke=False) == -1, "a run that failed before it saved begins anew"
