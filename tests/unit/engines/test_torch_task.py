"""A task that lacks a method says which one, and what it returns."""

import pytest
from torch import nn

from rampup.core.settings import Settings
from rampup.engines.torch.task import Task
from rampup.errors import RampupError


class Unfinished(Task):
    pass


@pytest.mark.parametrize(
    ("method", "arguments"),
    [("data", ()), ("model", ()), ("loss", (nn.ReLU(), 0)), ("evaluate", (nn.ReLU(), 0))],
)
def test_a_method_that_is_missing_is_named(method: str, arguments: tuple[object, ...]) -> None:
    with pytest.raises(RampupError, match=rf"^Unfinished has no {method}\(\)$") as caught:
        getattr(Unfinished(Settings({})), method)(*arguments)
    assert caught.value.hint.startswith("return ")
