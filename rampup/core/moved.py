"""Old names of modules, for recipes that were written for the version before.

A run that was started by that version and requeued after an update must continue. So the worker and
the settings check install a finder before they import a user's recipe: an old name gives the module
under its new name, and one line says what to import instead. It is asked last, after every other
finder, so an import that works costs nothing more. Nobody else installs it, and rampup itself never
uses an old name.
"""

import importlib
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple, cast

if TYPE_CHECKING:
    from importlib.abc import Loader  # slow to import, and its class adds nothing


class Moved(NamedTuple):
    now: str
    """The module that has its content."""
    public: str
    """The public module that recipes import from."""


MOVED = {
    "rampup.data.fetch": Moved("rampup.datasets.sets", "rampup.recipe"),
    "rampup.data.idx": Moved("rampup.datasets.idx", "rampup.recipe"),
    "rampup.data.sets": Moved("rampup.datasets.sets", "rampup.recipe"),
    "rampup.engines.keras_task": Moved("rampup.engines.keras.task", "rampup.keras"),
    "rampup.engines.torch_task": Moved("rampup.engines.torch.task", "rampup.torch"),
    "rampup.runtime.settings": Moved("rampup.core.settings", "rampup.recipe"),
    "rampup.spec": Moved("rampup.core.spec", "rampup.recipe"),
}
"""The modules that recipes of the version before import, by their old names."""


class MovedModules:
    """Makes an old name an alias: both names in `sys.modules` are the same module."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in MOVED:
            return None
        return ModuleSpec(fullname, cast("Loader", self))

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        now, public = MOVED[spec.name]
        # asked once for each name: afterwards it is in sys.modules
        print(f"{spec.name} has moved: import from {public}", file=sys.stderr, flush=True)
        module = importlib.import_module(now)
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        # The import system has given the module the spec of the alias: put its own one back.
        if module.__spec__ is not None:
            module.__spec__ = module.__spec__.loader_state


def install() -> None:
    """Let this process import the old names."""
    if not any(isinstance(finder, MovedModules) for finder in sys.meta_path):
        sys.meta_path.append(MovedModules())
