"""rampup: from one laptop core to many cluster nodes, with one command.

The public names are those of `__all__` here and in the modules `rampup.torch`, `rampup.keras` and
`rampup.recipe`; everything else may move. Each is loaded at its first use, because the command line
imports this package and must not pay for the job side.
"""

from typing import TYPE_CHECKING

__version__ = "0.1.0"
__all__ = ["Job", "Run", "RunFailed", "__version__", "attach", "init", "launch"]

if TYPE_CHECKING:
    from rampup import keras as keras
    from rampup import recipe as recipe
    from rampup import torch as torch
    from rampup.errors import RunFailed
    from rampup.functions.job import Job
    from rampup.functions.launch import attach, launch
    from rampup.runtime.session import Run, init

_HOMES = {
    "Job": "rampup.functions.job",
    "Run": "rampup.runtime.session",
    "RunFailed": "rampup.errors",
    "attach": "rampup.functions.launch",
    "init": "rampup.runtime.session",
    "launch": "rampup.functions.launch",
}
_MODULES = ("keras", "recipe", "torch")
"""Not in `__all__`: `from rampup import *` would load every framework."""


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name in _MODULES:
        return import_module(f"rampup.{name}")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'rampup' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *_MODULES])
