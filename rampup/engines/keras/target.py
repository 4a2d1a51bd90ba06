"""A user's own functions as a task: one builds a compiled Keras model, another loads the data.

engine.py makes a Target for `rampup run my_module:build_model data=my_module:load_data`; a .npz
file can take the place of the second function. A setting that was given goes to every function that
has an argument of that name. The functions know nothing about rampup.
"""

import importlib
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rampup.core.settings import Settings
from rampup.engines import parts
from rampup.engines.keras.setup import tf_keras
from rampup.engines.keras.task import ArrayData, Data, Task
from rampup.errors import RampupError, nearest
from rampup.rundir.records import Record

RETURNS = "return (x, y), (x_validation, y_validation), or (x, y) alone"
IN_FILES = (("x_train", "y_train"), ("x_test", "y_test"), ("x_val", "y_val"))
"""Names of the arrays, as Keras's own data sets have them."""


class Target(Task):
    def __init__(self, build: Callable[..., Any], config: Record, settings: Settings) -> None:
        super().__init__(settings)
        self._given = parts.given_settings(config, settings)
        self._build = build

    @property
    def origin(self) -> str:
        return str(getattr(self._build, "__name__", "the function"))

    def model(self) -> tf_keras.Model:
        return self._build(**self._arguments(self._build))

    def compile_settings(self) -> Mapping[str, Any]:
        raise RampupError(
            f"the model that {self.origin} returns is not compiled",
            "call model.compile(...) before",
        )

    def data(self) -> tuple[Data, Data | None]:
        where: str = self.settings.data
        if where.endswith(".npz"):
            return load_npz(Path(where))
        load = load_function(where)
        return to_data(load(**self._arguments(load)), where)

    def _arguments(self, function: Callable[..., Any]) -> dict[str, Any]:
        parameters = inspect.signature(function).parameters
        if any(each.kind == each.VAR_KEYWORD for each in parameters.values()):
            return {key: value for key, value in self._given.items() if key != "data"}
        return {key: value for key, value in self._given.items() if key in parameters}


def load_function(target: str) -> Callable[..., Any]:
    module_name, _, name = target.partition(":")
    module = importlib.import_module(module_name)
    found = getattr(module, name, None)
    if not callable(found):
        known = [each for each, value in vars(module).items() if callable(value)]
        raise RampupError(f"{module_name} has no function {name!r}", nearest(name, known))
    called: Callable[..., Any] = found
    return called


def to_data(found: Any, where: str) -> tuple[Data, Data | None]:
    """Return what the user's function has returned as training and validation data."""
    if not isinstance(found, tuple | list) or len(found) != 2:
        raise RampupError(f"{where} returned {type(found).__name__}, not a pair", RETURNS)
    train, validation = found
    if hasattr(train, "batch") and hasattr(train, "__len__") and not hasattr(train, "element_spec"):
        return train, validation
    if isinstance(train, tuple | list) and len(train) == 2:
        return ArrayData(*train), ArrayData(*validation) if validation is not None else None
    if hasattr(train, "element_spec"):
        message = f"{where} returned a tf.data.Dataset, whose samples can't be accessed by index"
        raise RampupError(
            message, f"{RETURNS}, or an object with __len__ and batch(indices): docs/keras.md"
        )
    return ArrayData(train, validation), None


def load_npz(path: Path) -> tuple[Data, Data | None]:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            found = [
                tuple(arrays[name] for name in names)
                for names in IN_FILES
                if set(names) <= set(arrays.files)
            ]
    except (OSError, ValueError) as error:
        raise RampupError(
            f"data: can't read {path}: {error}", "a .npz file with x_train and y_train"
        ) from error
    if not found:
        raise RampupError(
            f"data: {path} has no arrays x_train and y_train", "numpy.savez names them"
        )
    return ArrayData(*found[0]), ArrayData(*found[1]) if len(found) > 1 else None
