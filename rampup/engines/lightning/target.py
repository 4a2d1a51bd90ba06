"""A user's own LightningModule and LightningDataModule, imported and built from the settings.

engine.py makes a Target for `rampup run my_module:Net`. A setting that was given goes to every
constructor that has an argument of that name, and to the Trainer; all other arguments keep the
class's defaults. The classes know nothing about rampup.
"""

import importlib
import inspect
import sys
from collections.abc import Mapping
from typing import Any

from lightning.pytorch import LightningDataModule, LightningModule

from rampup.core.engines.lightning import LIGHTNING, OF_TRAINER, class_names
from rampup.core.settings import Settings
from rampup.engines.lightning.objects import build_argument
from rampup.engines.parts import given_settings
from rampup.errors import RampupError, nearest
from rampup.rundir.records import Record

TRAINER = "trainer."
PRECISIONS = {"fp32": "32-true", "fp16": "16-mixed", "bf16": "bf16-mixed"}


class Target:
    """The user's classes, and the arguments that they and the Trainer get."""

    def __init__(self, config: Record, settings: Settings) -> None:
        if config.get("folder"):
            sys.path.insert(0, config["folder"])
        self._settings = settings
        self._given = given_settings(config, settings)
        self._module = load_class(config["entry"], LightningModule)
        self._data = None
        if settings.get("data"):
            self._data = load_class(settings.data, LightningDataModule)
        self._check_names()

    def module(self) -> LightningModule:
        made: LightningModule = self._module(**self._arguments(self._module))
        return made

    def data(self) -> LightningDataModule | None:
        return self._data(**self._arguments(self._data)) if self._data else None

    def classes(self) -> tuple[str, ...]:
        """Return the class names that the user gave; a default of the class does not count."""
        return class_names(self._given.get("classes"))

    def workers(self) -> int | str:
        """Return the workers of the data loaders; a class with such an argument decides itself."""
        classes = [each for each in (self._module, self._data) if each]
        if any("num_workers" in constructor_arguments(each)[0] for each in classes):
            return "own"
        wish: int | str = self._settings.get("num_workers", "own")
        return wish

    def trainer(self) -> dict[str, Any]:
        """Return the arguments of Lightning's Trainer."""
        settings = self._settings
        named = {key: settings[key] for key in OF_TRAINER}
        precision = PRECISIONS.get(settings.precision, settings.precision)
        own = {
            key.removeprefix(TRAINER): value
            for key, value in self._given.items()
            if key.startswith(TRAINER)
        }
        return {**named, "max_steps": settings.max_steps or -1, "precision": precision, **own}

    def _arguments(self, wanted: type) -> dict[str, Any]:
        named, takes_any = constructor_arguments(wanted)
        found = {
            key: build_argument(wanted, key, key, self._given)
            for key in self._given
            if key in named
        }
        return {**found, **self._unclaimed()} if takes_any else found

    def _unclaimed(self) -> dict[str, Any]:
        """Return the given settings that no signature names, for constructors with **kwargs."""
        known = {*LIGHTNING, *constructor_arguments(self._module)[0]}
        if self._data:
            known.update(constructor_arguments(self._data)[0])
        return {
            key: value
            for key, value in self._given.items()
            if key not in known and not key.startswith(TRAINER) and not self._is_of_object(key)
        }

    def _is_of_object(self, key: str) -> bool:
        """Whether a setting is about an object that is built for another one: net.width."""
        name, dot, _ = key.partition(".")
        return bool(dot) and name in self._given

    def _check_names(self) -> None:
        classes = [each for each in (self._module, self._data) if each]
        if any(constructor_arguments(each)[1] for each in classes):
            return
        for key in self._unclaimed():
            names = " and ".join(each.__name__ for each in classes)
            known = {name for each in classes for name in constructor_arguments(each)[0]}
            raise RampupError(
                f"{names}: no argument is named {key!r}", nearest(key, {*known, *LIGHTNING})
            )


def constructor_arguments(wanted: type) -> tuple[list[str], bool]:
    """Return the names that a constructor takes, and whether it takes any other."""
    if wanted.__init__ in (LightningModule.__init__, LightningDataModule.__init__):  # type: ignore[misc]
        return [], False
    parameters: Mapping[str, inspect.Parameter] = inspect.signature(wanted).parameters
    named = [
        name
        for name, found in parameters.items()
        if found.kind not in (found.VAR_KEYWORD, found.VAR_POSITIONAL)
    ]
    return named, any(found.kind == found.VAR_KEYWORD for found in parameters.values())


def load_class(target: str, kind: type) -> Any:
    """Import what `pkg.mod:Class` names, and refuse a class of another kind."""
    module_name, _, name = target.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        absent = error.name or "a module"
        if module_name == absent or module_name.startswith(f"{absent}."):
            raise RampupError(
                f"no module {module_name!r}", "write pkg.mod:Class, as in `import pkg.mod`"
            ) from error
        raise RampupError(
            f"{module_name} can't be imported: {absent} is not installed",
            f"pip install {absent.partition('.')[0]}",
        ) from error
    if not hasattr(module, name):
        known = [each for each, value in vars(module).items() if isinstance(value, type)]
        raise RampupError(f"{module_name} has no class {name!r}", nearest(name, known))
    found = getattr(module, name)
    if isinstance(found, type) and issubclass(found, kind):
        return found
    bases = [base.__module__.partition(".")[0] for base in getattr(found, "__mro__", ())]
    if "pytorch_lightning" in bases:
        raise RampupError(
            f"{target} is made with pytorch_lightning, which is another package than lightning",
            "write `import lightning.pytorch as pl` in place of `import pytorch_lightning as pl`",
        )
    raise RampupError(
        f"{target} is not a {kind.__name__}",
        f"name a class that is a lightning.pytorch.{kind.__name__}",
    )
