"""Objects that a LightningModule gets as arguments, built from `net=pkg.mod:Net net.width=64`.

target.py calls this for every argument of the user's classes. An optimizer or a scheduler needs what
only the module has: it is handed over as a function that takes the rest.
"""

import functools
import importlib
import inspect
from collections.abc import Mapping
from typing import Any

from rampup.core.engines.lightning import LATER, OBJECT
from rampup.errors import RampupError, nearest


def build_argument(wanted: Any, name: str, key: str, given: Mapping[str, Any]) -> Any:
    """Return what the argument `name` of `wanted` gets: the value of the setting `key`, or the
    object that it names."""
    value = given[key]
    is_path = isinstance(value, str) and OBJECT.fullmatch(value) is not None
    if not is_path or _takes_text(wanted, name):
        return value
    made = find_object(key, value)
    named = find_arguments(key, given)
    arguments = {each: build_argument(made, each, f"{key}.{each}", given) for each in named}
    needs = inspect.signature(made).parameters.values()
    if any(each.name in LATER and each.default is each.empty for each in needs):
        return functools.partial(made, **arguments)
    return made(**arguments)


def find_arguments(key: str, given: Mapping[str, Any]) -> list[str]:
    """Return the names of the arguments that were given for the object of a setting."""
    before = f"{key}."
    names = [name.removeprefix(before) for name in given if name.startswith(before)]
    return [name for name in names if "." not in name]


def find_object(key: str, target: str) -> Any:
    """Import what `pkg.mod:Class` names."""
    module_name, _, name = target.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise RampupError(
            f"{key}={target}: {module_name} can't be imported: {error}",
            f"write {key}=pkg.mod:Class, as in `import pkg.mod`",
        ) from error
    if not hasattr(module, name):
        known = [each for each, value in vars(module).items() if callable(value)]
        raise RampupError(f"{key}={target}: {module_name} has no {name!r}", nearest(name, known))
    return getattr(module, name)


def _takes_text(wanted: Any, name: str) -> bool:
    """Whether the argument is for text, which may look like the path of a class."""
    parameter = inspect.signature(wanted).parameters.get(name)
    if parameter is None:
        return False
    return parameter.annotation in (str, "str") or isinstance(parameter.default, str)
