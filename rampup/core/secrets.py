"""Which names stand for secrets: their values are never written into a run directory.

The record of environment variables and the record of a loop's settings ask here. A value is judged
by its name alone.
"""

import math
import re
from collections.abc import Mapping
from typing import Any

HIDDEN = "(not shown)"
SECRET = ("TOKEN", "SECRET", "PASS", "KEY", "CREDENTIAL", "AUTH")
SECRET_WORDS = frozenset(
    (*SECRET, "PASSWORD", "PASSWD", "PASSPHRASE", "APIKEY", "CREDENTIALS", "TOKENS", "SECRETS")
)


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
