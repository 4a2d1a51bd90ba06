"""Who else may read a run: the modes of its directory and of the files that hold what was asked for.

The cluster profile says it once, as `share`. The command line applies it when it makes a run. The
job's own files, such as logs and metrics, follow the umask; the mode of the run directory counts
for them all. What only the owner may ever read (the key of the ranks, pickles) is not affected.
"""

import os
import stat
from pathlib import Path
from typing import NamedTuple

from rampup.core.spec import Share

OWNER_ONLY = 0o600
KEY_BYTES = 32


class Modes(NamedTuple):
    """The bits that are asked for, of which the umask takes some, and those that come in any
    case."""

    folder: int
    folder_at_least: int
    private: int
    """Of files with settings, commands and variables."""
    private_at_least: int


MODES: dict[Share, Modes] = {
    "none": Modes(0o700, 0, OWNER_ONLY, 0),
    "results": Modes(0o750, 0, OWNER_ONLY, 0),
    "group": Modes(0o770, 0o050, 0o660, 0o040),
    "all": Modes(0o777, 0o055, 0o666, 0o044),
}


def make_folder(path: Path, share: Share) -> None:
    """Make a folder that nobody else can open before it has its mode."""
    modes = MODES[share]
    path.mkdir(modes.folder)
    if modes.folder_at_least:
        # as it is now: the folder above may have handed down its setgid bit
        path.chmod(stat.S_IMODE(path.stat().st_mode) | modes.folder_at_least)


def write_private(path: Path, content: bytes, share: Share) -> None:
    """Write a new file with what was asked for."""
    modes = MODES[share]
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with open(os.open(path, flags, modes.private), "wb") as file:
        if modes.private_at_least:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            os.fchmod(file.fileno(), mode | modes.private_at_least)
        file.write(content)


def write_key(path: Path) -> None:
    """Write the key with which the ranks of a run know each other, for its owner alone."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with open(os.open(path, flags, OWNER_ONLY), "w", encoding="ascii") as file:
        os.fchmod(file.fileno(), OWNER_ONLY)  # whatever the folder's ACL hands down
        file.write(f"{os.urandom(KEY_BYTES).hex()}\n")
