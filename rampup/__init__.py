"""rampup: from one laptop core to many cluster nodes, with one command.

Public are the names of `__all__` here and in the modules `rampup.torch`, `rampup.keras` and
`rampup.recipe`; everything else may move. All of it is loaded at first use, because the command
line imports this package and must not pay for the job side.
"""

from typing import TYPE_CHECKING

__version__ = "0.1.0"
__all__ = ["Run", "__version__", "init"]

if TYPE_CHECKING:
    from rampup import keras as keras
    from rampup import recipe as recipe
    from rampup import torch as torch
    from rampup.runtime.session import Run, init

_MODULES = ("keras", "recipe", "torch")
"""Not in `__all__`: `from rampup import *` would load every framework."""


def __getattr__(name: str) -> object:
    if name in _MODULES:
        from importlib import import_module

        return import_module(f"rampup.{name}")
    if name in __all__:
        from rampup.runtime import session

        return getattr(session, name)
    raise AttributeError(f"module 'rampup' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *_MODULES])
