"""Settings: how a value is checked and read from text, and how user code sees all of them.

The configuration checks what comes from TOML with `check_value` and reads the command line with
`parse_value`; the worker and `rampup.init()` hand `Settings` to user code. Which settings exist is
declared elsewhere (`core.spec.Setting`). Nothing here reads a file.
"""

import math
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

from rampup.core.spec import Setting, Value
from rampup.errors import Refused, nearest

PYTHON_TYPES: dict[str, tuple[type, ...]] = {
    "int": (int,),
    "float": (float,),
    "number": (int, float),
    "str": (str,),
    "bool": (bool,),
    "list": (list,),
    "any": (bool, int, float, str, list),
}
TYPE_NAMES = {
    "int": "a whole number",
    "float": "a number",
    "number": "a number",
    "str": "text",
    "bool": "true or false",
    "list": "a list",
    "any": "a value",
}


def check_value(setting: Setting, found: Any, key: str, origin: str) -> Value:
    """Return the value in its setting's type, or refuse it and say what is allowed."""
    if found is None and setting.optional:
        return None
    value: Any = float(found) if setting.type == "float" and type(found) is int else found
    if not _has_type(setting, value):
        raise _wrong_type(setting, value, key, origin)
    if setting.choices and value not in setting.choices:
        raise Refused(
            f"{key} = {value!r} ({origin}) is not one of its choices",
            f"allowed: {', '.join(setting.choices)}",
        )
    if setting.low is not None and value < setting.low:
        raise Refused(f"{key} = {value!r} ({origin}) is too small", f"at least {setting.low:g}")
    return value  # type: ignore[no-any-return]


def _has_type(setting: Setting, value: Any) -> bool:
    if type(value) not in PYTHON_TYPES[setting.type]:  # not isinstance: a bool is an int to it
        return False
    return not isinstance(value, float) or math.isfinite(value)


def parse_value(setting: Setting, text: str, key: str, origin: str) -> Value:
    """Read text of the command line as a value of that setting; a setting of type str takes it as it
    is."""
    if setting.optional and text.lower() == "none":
        return None
    if setting.type == "str":
        return check_value(setting, text, key, origin)
    if setting.type == "any":
        return check_value(setting, guess_value(text), key, origin)
    if setting.type == "list" and not text.startswith("["):
        text = f"[{text}]"
    value = guess_value(text.lower() if setting.type == "bool" else text)
    if isinstance(value, str):  # TOML can't read it: neither a number nor a list
        raise _wrong_type(setting, text, key, origin)
    return check_value(setting, value, key, origin)


def guess_value(text: str) -> Value:
    """Read text as TOML does, or return it unchanged: for settings that are not declared."""
    try:
        value = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    found = value["value"]
    return found if len(value) == 1 and isinstance(found, bool | int | float | list) else text


def _wrong_type(setting: Setting, value: Any, key: str, origin: str) -> Refused:
    optional = ", or none" if setting.optional else ""
    return Refused(
        f"{key} = {value!r} ({origin}) has the wrong type",
        f"{key} takes {TYPE_NAMES[setting.type]}{optional}",
    )


class Settings(Mapping[str, Any]):
    """The settings of a run as user code sees them: `settings.lr` or `settings["lr"]`, read-only. An
    unknown name is answered with the nearest one."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = dict(values)

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # copy and pickle ask for these before _values exists
            raise AttributeError(name)
        try:
            return self._values[name]
        except KeyError:
            raise AttributeError(
                f"no setting named {name}; {nearest(name, self._values)}"
            ) from None

    def __repr__(self) -> str:
        return f"Settings({self._values!r})"
