"""Where the user's own files are: state, configuration and cache, by the XDG rules.

A user without a home directory gets a folder in /tmp. Nothing here creates a directory.
"""

import os
from pathlib import Path


def state_home() -> Path:
    return _xdg_home("XDG_STATE_HOME", ".local/state")


def config_home() -> Path:
    return _xdg_home("XDG_CONFIG_HOME", ".config")


def cache_home() -> Path:
    return _xdg_home("XDG_CACHE_HOME", ".cache")


def _xdg_home(variable: str, below_home: str) -> Path:
    given = os.environ.get(variable)
    if given:
        return Path(given)
    try:
        return Path.home() / below_home
    except RuntimeError:  # no HOME, and a user without an entry in passwd, as in a container
        import tempfile  # slow to import, and hardly anybody needs it

        return Path(tempfile.gettempdir()) / f"rampup-{os.getuid()}" / below_home
