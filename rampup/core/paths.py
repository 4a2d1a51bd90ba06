"""Where a user's own files are: state, configuration, cache, as XDG has it; in /tmp for who has no
home."""

import os
import tempfile
from pathlib import Path


def state() -> Path:
    return _place("XDG_STATE_HOME", ".local/state")


def config() -> Path:
    return _place("XDG_CONFIG_HOME", ".config")


def cache() -> Path:
    return _place("XDG_CACHE_HOME", ".cache")


def _place(variable: str, below_home: str) -> Path:
    given = os.environ.get(variable)
    if given:
        return Path(given)
    try:
        return Path.home() / below_home
    except RuntimeError:  # no HOME, and a user that nobody knows: a container
        return Path(tempfile.gettempdir()) / f"rampup-{os.getuid()}" / below_home
