"""The call that travels to the ranks: which function it is, where its code comes from, and the
pickle of the function with its arguments.

A function of a module travels by its import path, with a copy of the code. One of a script's
`__main__`, of a notebook or within another function has no such path: cloudpickle takes its code
along. What can't be pickled is found by name. Nothing is written here.
"""

import functools
import hashlib
import inspect
import io
import linecache
import os
import pickle
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from rampup.core.spec import FunctionInfo
from rampup.errors import Refused
from rampup.rundir.pickles import DEEPEST, describe_error, dumps, find_fault, find_part
from rampup.rundir.results import is_plain

MAIN = "__main__"


class PackedCall(NamedTuple):
    """A call, ready to travel."""

    info: FunctionInfo
    content: bytes
    """The file that the ranks read."""


def pack(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> PackedCall:
    """Return the call as the ranks will read it. What can't travel is refused with its name."""
    inner = find_inner(function)
    module = sys.modules.get(inner.__module__)
    is_named = is_importable(inner, module)
    code, folder = find_code(inner, module if is_named else sys.modules.get(MAIN))
    needs_code = not (is_named and inner is function and is_plain((args, dict(kwargs))))
    if needs_code and find_spec("cloudpickle") is None:
        raise Refused(
            f"{describe(inner)} or an argument of it has no import path, so its code must travel "
            "along, and cloudpickle is not installed",
            "pip install 'rampup[launch]', or move it into a module",
        )
    stream = io.BytesIO()
    pickle.dump(find_sources(inner), stream)
    try:
        stream.write(dumps((function, args, dict(kwargs))))
    except Exception as error:
        raise refuse_unpicklable(function, args, kwargs, error) from None
    content = stream.getvalue()
    info = FunctionInfo(
        name=describe(inner),
        by="path" if is_named else "value",
        code=list(code),
        folder=str(folder),
        path=find_own_folders(folder if is_named else None),
        python=f"{sys.version_info.major}.{sys.version_info.minor}",
        cloudpickle=cloudpickle_version() if needs_code else "",
        sha256=hashlib.sha256(content).hexdigest(),
    )
    return PackedCall(info, content)


def cloudpickle_version() -> str:
    import cloudpickle  # only a call that takes code along pays for it

    return str(cloudpickle.__version__)


# which function -----------------------------------------------------------------------------------


def find_inner(function: Any) -> Any:
    """Return the function that a partial, a method or an object with __call__ stands for."""
    if isinstance(function, functools.partial):
        return find_inner(function.func)
    if inspect.ismethod(function):
        return function.__func__
    if hasattr(function, "__qualname__"):
        return function
    return type(function)


def describe(inner: Any) -> str:
    name = inner.__qualname__.replace("<lambda>", "lambda").replace("<locals>.", "")
    return name if inner.__module__ == MAIN else f"{inner.__module__}.{name}"


def is_importable(inner: Any, module: ModuleType | None) -> bool:
    """Whether the ranks find the very same object by its import path."""
    if module is None or inner.__module__ == MAIN:
        return False
    found: Any = module
    for part in inner.__qualname__.split("."):
        found = getattr(found, part, None)
    return found is inner


def find_code(inner: Any, module: ModuleType | None) -> tuple[Sequence[str], Path]:
    """Return a command whose code is the function's, and the folder where that command would be
    started: from them runs/code.py knows what to copy."""
    file, here = getattr(module, "__file__", None), Path.cwd()
    if file is None or module is None:  # a notebook, a REPL, python -c
        return ("python", "-c", ""), here
    path = Path(os.path.abspath(file))
    name = module.__name__
    if name == MAIN:
        return ("python", str(path)), here
    depth = name.count(".") + (path.name == "__init__.py")
    folder = path.parents[depth]
    if depth == 0:
        return ("python", path.name), folder
    return ("python", "-m", name), folder


def find_own_folders(first: Path | None) -> list[str]:
    """Return the folders of the user's own modules, in the order in which they are searched: not
    Python's, and not those of installed packages, which the ranks have from their environment."""
    python = {str(Path(each).resolve()) for each in (sys.prefix, sys.base_prefix)}
    found = [str(first)] if first is not None else []
    for entry in sys.path:
        place = Path(entry or ".").resolve()
        is_installed = {"site-packages", "dist-packages"} & set(place.parts)
        if (
            place.is_dir()
            and not is_installed
            and not python & {str(place), *map(str, place.parents)}
        ):
            found.append(str(place))
    return list(dict.fromkeys(found))


def find_sources(inner: Any) -> dict[str, list[str]]:
    """Return the lines of a function that has no file, so that tracebacks can show them."""
    code = getattr(inner, "__code__", None)
    if code is None or os.path.exists(code.co_filename):
        return {}
    lines = linecache.getlines(code.co_filename)
    return {code.co_filename: lines} if lines else {}


# what can't be pickled ----------------------------------------------------------------------------


def refuse_unpicklable(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    error: Exception,
) -> Refused:
    """Return the refusal, with the name of the variable that is at fault."""
    name = describe(find_inner(function))
    given = (*name_object(function, name), *name_arguments(function, args, kwargs))
    for found in (*given, *name_variables(function, name)):
        why = find_fault(found.value)
        if why:
            part, why = find_part(found.value, why)
            hint = "create it inside the function, or pass what it is made from"
            return Refused(
                f"{found.kind} `{found.name}{part}`{found.of} can't be sent to the ranks: {why}",
                hint,
            )
    hint = "move the function into a module, with what it needs created inside it"
    return Refused(f"{name} can't be sent to the ranks: {describe_error(error)}", hint)


class Named(NamedTuple):
    """Something that travels with a call, as its author calls it."""

    kind: str
    name: str
    value: Any
    of: str = ""


def name_object(function: Any, user: str) -> Iterator[Named]:
    """Yield the object whose method is called, and what a partial binds."""
    if isinstance(function, functools.partial):
        yield from name_object(function.func, user)
        yield from name_arguments(function.func, function.args, function.keywords)
    elif inspect.ismethod(function):
        yield Named("variable", "self", function.__self__, f" of {user}()")
    elif not hasattr(function, "__qualname__"):
        yield Named("variable", "self", function, f" of {user}.__call__()")


def name_arguments(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Iterator[Named]:
    try:
        bound = inspect.signature(function).bind_partial(*args, **kwargs)
    except (TypeError, ValueError):  # a function without a signature
        bound = None
    given: Mapping[str, Any] = kwargs if bound is None else bound.arguments
    for key, value in given.items():
        is_many = isinstance(value, tuple) and value is not kwargs.get(key)
        for index, each in enumerate(value if is_many else [value]):
            yield Named("argument", f"{key}[{index}]" if is_many else key, each)


def name_variables(function: Any, user: str, depth: int = DEEPEST) -> Iterator[Named]:
    """Yield the variables from outside that a function uses, and those of the functions that it
    calls."""
    inner = find_inner(function)
    if not inspect.isfunction(inner):
        return
    try:
        found = inspect.getclosurevars(inner)
    except ValueError:  # a variable that has no value yet
        return
    for key, value in {**found.nonlocals, **found.globals}.items():
        if inspect.isfunction(value) and depth > 0 and value is not inner:
            yield from name_variables(value, key, depth - 1)
        yield Named("variable", key, value, f", which {user}() uses,")
