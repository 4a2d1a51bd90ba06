"""What can't be pickled is found by name, however deep it lies."""

import functools
import threading
from typing import Any

import pytest

from rampup.errors import Refused
from rampup.functions.call import pack

LOCK = "cannot pickle '_thread.lock' object"


class Store:
    def __init__(self) -> None:
        self.name = "store"
        self.parts = [1, {"guard": threading.Lock()}]

    def train(self, lr: float) -> float:
        return lr

    def __call__(self) -> str:
        return self.name


def train(store: Any, *more: Any, lr: float = 0.1) -> float:
    return lr


def refusal(function: Any, *args: Any, **kwargs: Any) -> Refused:
    with pytest.raises(Refused) as caught:
        pack(function, args, kwargs)
    assert caught.value.hint
    return caught.value


def test_the_part_of_an_argument_is_named() -> None:
    found = refusal(train, Store()).message
    assert found == f"argument `store.parts[1]['guard']` can't be sent to the ranks: {LOCK}"
    assert "argument `more[1]`" in refusal(train, 1, 2, threading.Lock()).message


def test_the_object_of_a_method_is_named() -> None:
    name = f"{__name__}.Store"
    found = refusal(Store().train, 0.1).message
    assert (
        found
        == f"variable `self.parts[1]['guard']` of {name}.train() can't be sent to the ranks: {LOCK}"
    )
    assert f"of {name}.__call__()" in refusal(Store()).message


def test_what_a_partial_binds_is_named() -> None:
    assert "argument `lr`" in refusal(functools.partial(train, lr=threading.Lock()), 1).message
    bound = functools.partial(Store().train, 0.1)
    assert "variable `self.parts[1]['guard']`" in refusal(bound).message


def test_what_nobody_can_name_still_has_a_hint() -> None:
    class Odd:
        def __reduce__(self) -> Any:
            raise TypeError("no")

    assert "argument `store`" in refusal(train, Odd()).message

    def hidden(lock: Any = threading.Lock()) -> None: ...  # noqa: B008

    assert LOCK in refusal(hidden).message
