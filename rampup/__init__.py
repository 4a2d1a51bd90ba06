"""rampup: from one laptop core to many cluster nodes, with one command."""

from typing import TYPE_CHECKING

__version__ = "0.1.0"
__all__ = ["__version__", "init"]

if TYPE_CHECKING:
    from rampup.runtime.session import init


def __getattr__(name: str) -> object:
    # Lazy, because the command line imports this package and must not pay for the job side.
    if name == "init":
        from rampup.runtime.session import init

        return init
    raise AttributeError(f"module 'rampup' has no attribute {name!r}")
