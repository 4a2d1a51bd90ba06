"""Settings as user code sees them, and as a run directory stores them: without secrets.

The worker and `rampup.init()` hand them to user code. The records of settings and of environment
variables ask here which names stand for secrets; a value is judged by its name alone. Which
settings exist is declared in core/spec.py and core/engines/; config/setting_tables.py checks their values.
Nothing here reads a file.
"""

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from rampup.errors import nearest

HIDDEN = "(not shown)"
SECRET = ("TOKEN", "SECRET", "PASS", "KEY", "CREDENTIAL", "AUTH")
SECRET_WORDS = frozenset(
    (*SECRET, "PASSWORD", "PASSWD", "PASSPHRASE", "APIKEY", "CREDENTIALS", "TOKENS", "SECRETS")
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


# what a run directory may store -------------------------------------------------------------------


def is_secret_variable(name: str) -> bool:
    """Return whether an environment variable may hold a secret: any part of its name decides."""
    return any(word in name.upper() for word in SECRET)


def is_secret_setting(name: str) -> bool:
    """Return whether a setting may hold a secret. Only whole words decide: `api_key` does, but
    `tokenizer` and `passes` do not."""
    return not SECRET_WORDS.isdisjoint(re.split(r"[^A-Z0-9]+", name.upper()))


def to_stored(value: Any, name: str = "") -> Any:
    """Return the value of a setting as JSON can hold it, with hidden secrets. Numbers are never
    secrets: `max_tokens` stays."""
    if isinstance(value, Mapping):
        return {str(key): to_stored(inner, str(key)) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [to_stored(inner, name) for inner in value]
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    return HIDDEN if is_secret_setting(name) else str(value)
