"""Files that only their owner may read, and what must be true before one of them is unpickled.

A pickle runs code when it is loaded. So a file is read only if it belongs to this user, nobody else
can write it, and no link leads to it; and a result also needs a signature made with a key that lies
outside of every run directory. `rampup.launch` and the ranks that it starts call this.
"""

import hashlib
import hmac
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from rampup.core import paths
from rampup.errors import Refused

KEY_BYTES = 32
MODE = 0o600


def write(path: Path, fill: Callable[[BinaryIO], object]) -> None:
    """Write a file of mode 0600 in one step; `fill` gets it open. A file of that name is
    replaced."""
    beside = path.with_name(f".{path.name}.{os.urandom(6).hex()}")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, MODE)
    try:
        with open(descriptor, "wb") as file:
            os.fchmod(file.fileno(), MODE)  # whatever the umask says
            fill(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def read(path: Path) -> bytes:
    """Return the content of a file that is this user's alone; any other is refused."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise Refused(f"can't read {path}: {error.strerror}", _hint(path)) from None
    with open(descriptor, "rb") as file:
        facts = os.fstat(file.fileno())
        wrong = find_fault(facts)
        if wrong:
            raise Refused(f"{path} is not loaded: {wrong}", _hint(path))
        return file.read()


def find_fault(facts: os.stat_result) -> str:
    """Return why a file is not this user's alone; empty when it is."""
    if not stat.S_ISREG(facts.st_mode):
        return "it is not a file"
    if facts.st_uid != os.geteuid():
        return f"it belongs to user {facts.st_uid}, not to you ({os.geteuid()})"
    if facts.st_nlink != 1:
        return f"it has {facts.st_nlink} names (hard links)"
    if stat.S_IMODE(facts.st_mode) & 0o077:
        return f"its mode is {stat.S_IMODE(facts.st_mode):04o}, so others can reach it"
    return ""


def _hint(path: Path) -> str:
    return f"rampup made it with mode 0600; if nobody else could change it since: chmod 600 {path}"


# signatures ---------------------------------------------------------------------------------------


def key_file() -> Path:
    return paths.state_home() / "rampup" / "results.key"


def make_key() -> None:
    """Make this user's key, unless there is one. One that can't be used is refused now, not when a
    run has ended."""
    file = key_file()
    if file.exists():
        if read_key() is None:
            hint = f"rm {file}: rampup makes a new one, and no longer loads pickles of older runs"
            raise Refused(f"{file} is damaged: it has not {KEY_BYTES} bytes", hint)
        return
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        mine = file.with_name(f".{file.name}.{os.urandom(6).hex()}")
        write(mine, lambda out: out.write(os.urandom(KEY_BYTES)))
        try:
            os.link(mine, file)  # of two processes that make one, the first wins
        except FileExistsError:
            pass
        finally:
            mine.unlink(missing_ok=True)
    except OSError as error:
        hint = "set XDG_STATE_HOME to a directory that you can write"
        raise Refused(f"can't write {file}: {error.strerror}", hint) from None


def read_key() -> bytes | None:
    """Return this user's key; None where there is none, as on a node that does not see this
    home."""
    if not key_file().exists():
        return None
    key = read(key_file())
    return key if len(key) == KEY_BYTES else None


def sign(key: bytes, place: str, content: bytes) -> str:
    """Return the signature of some content for one place, so that it is not valid in another."""
    digest = hashlib.sha256(content).digest()
    return hmac.new(key, place.encode() + b"\0" + digest, hashlib.sha256).hexdigest()


def is_signed(key: bytes, place: str, content: bytes, signature: object) -> bool:
    return hmac.compare_digest(sign(key, place, content), str(signature))
