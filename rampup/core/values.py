"""One value of a setting: checked when it comes from TOML, read from text when it comes from the
command line."""

import math
import tomllib
from typing import Any

from rampup.core.spec import Setting, Value
from rampup.errors import Refused

PYTHON_TYPES: dict[str, tuple[type, ...]] = {
    "int": (int,),
    "float": (float,),
    "number": (int, float),
    "str": (str,),
    "bool": (bool,),
    "list": (list,),
    "any": (bool, int, float, str, list),
}
WORDS = {
    "int": "a whole number",
    "float": "a number",
    "number": "a number",
    "str": "text",
    "bool": "true or false",
    "list": "a list",
    "any": "a value",
}


def checked(setting: Setting, found: Any, key: str, origin: str) -> Value:
    """The value as its setting's type, or a refusal that says what is allowed."""
    if found is None and setting.optional:
        return None
    value: Any = float(found) if setting.type == "float" and type(found) is int else found
    if not _fits(setting, value):
        raise _wrong(setting, value, key, origin)
    if setting.choices and value not in setting.choices:
        raise Refused(
            f"{key} = {value!r} ({origin}) is not one of its choices",
            f"allowed: {', '.join(setting.choices)}",
        )
    if setting.low is not None and value < setting.low:
        raise Refused(f"{key} = {value!r} ({origin}) is too small", f"at least {setting.low:g}")
    fitting: Value = value
    return fitting


def _fits(setting: Setting, value: Any) -> bool:
    if type(value) not in PYTHON_TYPES[setting.type]:  # not isinstance: a bool is an int to it
        return False
    return not isinstance(value, float) or math.isfinite(value)


def parsed(setting: Setting, text: str, key: str, origin: str) -> Value:
    """Text of the command line as a value of that setting; a str setting takes the text as it
    is."""
    if setting.optional and text.lower() == "none":
        return None
    if setting.type == "str":
        return checked(setting, text, key, origin)
    if setting.type == "any":
        return checked(setting, guessed(text), key, origin)
    if setting.type == "list" and not text.startswith("["):
        text = f"[{text}]"
    value = guessed(text.lower() if setting.type == "bool" else text)
    if isinstance(value, str):  # TOML can't read it: no number, no list
        raise _wrong(setting, text, key, origin)
    return checked(setting, value, key, origin)


def guessed(text: str) -> Value:
    """As TOML reads it, else the text itself: for settings that nobody has declared."""
    try:
        value = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    found = value["value"]
    return found if len(value) == 1 and isinstance(found, bool | int | float | list) else text


def _wrong(setting: Setting, value: Any, key: str, origin: str) -> Refused:
    optional = ", or none" if setting.optional else ""
    return Refused(
        f"{key} = {value!r} ({origin}) has the wrong type",
        f"{key} takes {WORDS[setting.type]}{optional}",
    )
