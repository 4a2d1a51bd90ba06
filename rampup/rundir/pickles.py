"""Pickles of a call of `rampup.launch` and of its result, and which part of a value can't be pickled.

The caller and the ranks both write them. Loading is not done here: `private` and `results` say what
must be true before.
"""

import inspect
import itertools
import pickle
from collections.abc import Iterator
from typing import Any

TOO_DEEP = "it is nested too deeply"
DEEPEST = 3
"""So far a value that can't be pickled is followed: into its parts, and through functions that call
each other."""
MOST_PARTS = 10_000
"""So many parts of a value are tried."""


def dumps(value: Any) -> bytes:
    """Pickle a value: by cloudpickle where it is installed, which takes code along."""
    try:
        import cloudpickle
    except ImportError:
        return pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    found: bytes = cloudpickle.dumps(value)
    return found


def find_fault(value: Any) -> str:
    try:
        dumps(value)
    except Exception as error:
        return describe_error(error)
    return ""


def find_part(value: Any, why: str, depth: int = DEEPEST) -> tuple[str, str]:
    """Return which part of a value is at fault, as Python would write it after the value's name, and
    why. One that is nested too deeply has no such part."""
    if why == TOO_DEEP:
        return "", why
    for part, each in itertools.islice(list_parts(value) if depth > 0 else (), MOST_PARTS):
        fault = find_fault(each)
        if fault:
            further, fault = find_part(each, fault, depth - 1)
            return part + further, fault
    return "", why


def list_parts(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        yield from ((f"[{key!r:.40}]", each) for key, each in value.items())
    elif isinstance(value, list | tuple):
        yield from ((f"[{index}]", each) for index, each in enumerate(value))
    elif not isinstance(value, type) and not inspect.isroutine(value):
        yield from ((f".{key}", each) for key, each in getattr(value, "__dict__", {}).items())


def describe_error(error: Exception) -> str:
    if isinstance(error, RecursionError) or "recursion" in str(error).lower():
        return TOO_DEEP
    return str(error).partition("\n")[0]
