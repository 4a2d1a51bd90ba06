"""Where the user's own files are: state, configuration and cache, by the XDG rules.

A user without a home directory gets a folder in /tmp, which is the only one that is made here.
"""

import contextlib
import os
import stat
from pathlib import Path

from rampup.errors import Refused


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
        return _own_temporary() / below_home


def _own_temporary() -> Path:
    """Return a folder in /tmp. Anybody could have made it, so it counts only if it is this user's,
    and closed to others."""
    import tempfile  # slow to import, and hardly anybody needs it

    folder = Path(tempfile.gettempdir()) / f"rampup-{os.geteuid()}"
    with contextlib.suppress(OSError):
        folder.mkdir(mode=0o700)
    try:
        found = folder.lstat()
    except OSError:  # nobody can write there: who needs the folder will say so
        return folder
    is_own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
    if not is_own or stat.S_IMODE(found.st_mode) & 0o077:
        raise Refused(
            f"there is no home directory, and {folder} is not yours alone",
            "set HOME to a directory that only you can write",
        )
    return folder
