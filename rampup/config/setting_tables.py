"""Tables of settings: read from TOML, and filled layer by layer, each value with its origin.

[checkpoint] is declared here, [resources] in core/resources.py, [program] in core/program.py; the
keys of [train] come from the engine and the recipe. A value of a file is checked with `check_value`,
text of the command line is read with `parse_value`. An unknown key is answered with the setting that
other tools call by that name. resolve.py, recipes.py and clusters.py call this.
"""

import math
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rampup.config.synonyms import find_synonym
from rampup.core.program import Program
from rampup.core.resources import Resources, describe_settings
from rampup.core.spec import Setting, Value
from rampup.errors import Refused, nearest

CHECKPOINT = {
    "every": Setting(
        "str",
        "auto",
        "auto, 100steps, 30s, 15min, 2h, 1epoch or never; auto: at most 1 % of the time",
    ),
    "keep": Setting("int", 2, "how many of the newest to keep, in addition to the best", low=2),
}
RESOURCES = describe_settings(Resources)
PROGRAM = describe_settings(Program)

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


class Table:
    """One table of settings: its schema, the values so far, and the origin of each."""

    def __init__(self, name: str, schema: Mapping[str, Setting], free: bool = False) -> None:
        self.name, self.schema, self.free = name, dict(schema), free
        self.aliases: Mapping[str, str] = {}
        """Further names of settings."""
        self.values: dict[str, Value] = {key: setting.default for key, setting in schema.items()}
        self.origins = {f"{name}.{key}": setting.origin for key, setting in schema.items()}

    def put(self, key: str, value: Any, origin: str) -> None:
        """A value from a TOML file."""
        key = self.aliases.get(key, key)
        setting = self._setting(key, origin)
        self._set(
            key,
            check_value(setting, value, f"{self.name}.{key}", origin) if setting else value,
            origin,
        )

    def put_text(self, key: str, text: str, origin: str) -> None:
        """A value from the command line."""
        key = self.aliases.get(key, key)
        setting = self._setting(key, origin, text)
        self._set(
            key,
            parse_value(setting, text, f"{self.name}.{key}", origin)
            if setting
            else guess_value(text),
            origin,
        )

    def _setting(self, key: str, origin: str, text: str | None = None) -> Setting | None:
        if key not in self.schema and not self.free:
            raise Refused(f"unknown setting {self.name}.{key} ({origin})", self._suggest(key, text))
        return self.schema.get(key)

    def _suggest(self, key: str, text: str | None) -> str:
        """Return what to write in place of an unknown key; `text` is its value on the command
        line."""
        meant = find_synonym(key, self.schema)
        if meant is not None:
            return f"did you mean {meant}?" if text is None else f"write {meant}={text}"
        plain = key.replace("-", "_")
        if self.name == "train" and plain in RESOURCES:
            option = f"--{plain.replace('_', '-')}"
            if text is None:
                return f"write it under [resources], or use {option}"
            return f"write resources.{plain}={text}, or {option} {text}"
        return nearest(key, self.schema)

    def _set(self, key: str, value: Value, origin: str) -> None:
        self.values[key] = value
        self.origins[f"{self.name}.{key}"] = origin


# values -------------------------------------------------------------------------------------------


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


# files --------------------------------------------------------------------------------------------


def read_toml(path: Path) -> dict[str, Any]:
    """A TOML file, with a clear error instead of a traceback."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise Refused(f"no such file: {path}", "check the path") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Refused(
            f"{path} is not valid TOML: {error}", 'strings need quotes: name = "text"'
        ) from None
    except OSError as error:
        raise Refused(
            f"can't read {path}: {error.strerror}", "check the path and its permissions"
        ) from None
