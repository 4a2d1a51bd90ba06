"""Whose run it is, and what that allows: a foreign run is read, never obeyed, never followed.

Run directories are plain files that people copy and share. A verb that changes a run, or does what
is written in it, asks here first. `trusted_roots` in the user's own configuration lifts this for
folders whose writers the user trusts. Nothing here changes anything.
"""

import os
import pwd
import stat
import tomllib
from pathlib import Path

from rampup.core import paths
from rampup.errors import Refused
from rampup.rundir.files import RunDir

OTHERS_WRITE = 0o022
TRUSTED_ROOTS = "trusted_roots"


def owns(folder: Path) -> bool:
    """Return whether a folder, and the link that may lead to it, is this user's own."""
    try:
        named, found = os.lstat(folder), os.stat(folder)
    except OSError:
        return False
    return named.st_uid == found.st_uid == os.geteuid()


def is_obeyed(run: RunDir) -> bool:
    """Return whether what is written in a run may be done: nobody but this user can have written
    it, or the user trusts all who could."""
    if owns(run.path) and not run.path.stat().st_mode & OTHERS_WRITE:
        return True
    return is_in_trusted_root(run.path)


def may_change(folder: Path) -> bool:
    """Return whether this user may change a run, or a study, in that folder."""
    return owns(folder) or is_in_trusted_root(folder)


def refuse_foreign(run: RunDir, what: str) -> None:
    """Refuse to change a run of somebody else."""
    if may_change(run.path):
        return
    raise Refused(
        f"run {run.id} is not yours: it belongs to {name_owner(run.path)}, and only its owner can "
        f"{what}",
        f'to trust everybody who writes to that folder: {TRUSTED_ROOTS} = ["{run.path.parent}"] '
        f"in {config_file()}",
    )


def name_owner(folder: Path) -> str:
    try:
        number = os.stat(folder).st_uid
    except OSError:
        return "nobody known"
    try:
        return f"user {pwd.getpwuid(number).pw_name}"
    except KeyError:
        return f"user {number}"


def is_guarded(path: Path) -> bool:
    """Return whether only this user and root can have written a file: by its owner and mode, and by
    those of all folders above it."""
    real = Path(os.path.realpath(path))
    try:
        return all(_is_closed(os.lstat(each)) for each in (real, *real.parents))
    except OSError:
        return False


def _is_closed(found: os.stat_result) -> bool:
    if found.st_uid not in (os.geteuid(), 0):
        return False
    # in /tmp nobody renames what is somebody else's
    is_sticky = stat.S_ISDIR(found.st_mode) and bool(found.st_mode & stat.S_ISVTX)
    return is_sticky or not found.st_mode & OTHERS_WRITE


# the user's own word ------------------------------------------------------------------------------


def config_file() -> Path:
    return paths.config_home() / "rampup" / "config.toml"


def trusted_roots() -> list[Path]:
    """Return the folders of runs whose writers the user trusts."""
    file = config_file()
    try:
        found = tomllib.loads(file.read_text(encoding="utf-8")).get(TRUSTED_ROOTS, [])
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise Refused(
            f"can't read {file}: {error}", f'{TRUSTED_ROOTS} = ["/project/runs"]'
        ) from None
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise Refused(
            f"{file}: {TRUSTED_ROOTS} is not a list of folders",
            f'{TRUSTED_ROOTS} = ["/project/runs"]',
        )
    return [Path(os.path.realpath(os.path.expanduser(each))) for each in found if each]


def is_in_trusted_root(path: Path) -> bool:
    real = Path(os.path.realpath(path))
    return any(real.is_relative_to(root) for root in trusted_roots())
