"""What a user hands to `run.log` and `run.save`, checked: a step, and numbers by name.

`Run` in session.py calls it on every rank, so that a mistake fails the same way everywhere. It
accepts numbers of any library and refuses the rest with a hint. Nothing here writes.
"""

import operator
from collections.abc import Mapping
from typing import Any

from rampup.errors import RampupError
from rampup.runtime.telemetry.metrics import to_plain

EXAMPLE = 'run.log({"loss": 0.5}, step=3) or run.log(step=3, loss=0.5)'


def read_row(
    first: Any, step: Any, named: Mapping[str, Any], next_step: int
) -> tuple[int, dict[str, Any]]:
    """Return the step and the metrics of one call of `run.log`; `next_step` counts when the call
    gives no step.

    `first` is the argument without a name: a dict of metrics, or the step.
    """
    values = dict(named)
    if isinstance(first, Mapping):
        values = {**first, **named}
    elif first is not None:
        values["step"] = first
    if "step" in values:
        if step is not None:
            raise refuse("run.log: the step is given twice", EXAMPLE)
        step = values.pop("step")
    checked = next_step if step is None else check_step(step, "run.log", EXAMPLE)
    return checked, {name: check_metric(name, value) for name, value in values.items()}


def check_step(step: Any, where: str, hint: str) -> int:
    """Return the step as a whole number, or refuse it."""
    try:
        number = -1 if isinstance(step, bool) else operator.index(step)
    except TypeError:
        number = -1
    if number < 0:
        raise refuse(f"{where}: a step is a whole number, 0 or more, not {step!r}", hint)
    return number


def check_metric(name: Any, value: Any) -> float | None:
    """Return the metric as a number of Python, or refuse it. None stays: it was not measured."""
    if not isinstance(name, str):
        raise refuse(f"run.log: the name of a metric is text, not {name!r}", EXAMPLE)
    if name == "t":
        raise refuse("run.log(t=...): `t` is the time of the row", "give your value another name")
    try:
        plain = to_plain(value)
        if plain is None or isinstance(plain, bool | int | float):
            return plain
        if not isinstance(plain, str):
            return float(plain)
    except (TypeError, ValueError, RuntimeError):  # what torch and numpy raise for many values
        pass
    raise refuse(
        f"run.log: {name} must be one number, not {shorten(value)}",
        'log one number for each name, {"loss": 0.5}; print text instead',
    )


def shorten(value: Any) -> str:
    """Return a value in words that fit on a line."""
    text = repr(value)
    return text if len(text) <= 40 and "\n" not in text else f"a {type(value).__name__}"


def refuse(message: str, hint: str) -> RampupError:
    """Make the error; outside rampup Python prints its note below the traceback."""
    error = RampupError(message, hint)
    error.add_note(f"hint: {hint}")
    return error
