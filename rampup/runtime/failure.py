"""How a rank reports that it failed: error-<rank>.json for the launcher and `show`, its log for
people, and an exit code.

The worker and `rampup.init()` use it. A user's mistake is one line and a hint; anything else keeps
its traceback. When not even the failure can be written, the exit code still tells it.
"""

import contextlib
import os
import sys
import sysconfig
import time
import traceback
from pathlib import Path
from typing import Any

from rampup.errors import RampupError
from rampup.rundir.files import AttemptDir
from rampup.rundir.records import write_json
from rampup.runtime.storage import StorageError

DEEPEST_FRAMES = 100
"""Enough to find the line of the user's, also where a recursion has no end."""
TYPED = ("<stdin>", "<python-input-", "<ipython-input-")
"""What Python and IPython call code that was typed at their prompt."""
ANNOUNCES = ("in user code:", "Graph execution error:")
"""How messages of TensorFlow begin that have the cause on their last line."""


def report_failure(error: BaseException, attempt: AttemptDir, rank: int) -> int:
    """Record the error, print it, and return the exit code for the process."""
    record_failure(error, attempt, rank)
    with contextlib.suppress(OSError):  # as in `record_failure`
        print(_format(error), file=sys.stderr, flush=True)
    if isinstance(error, StorageError):
        _silence_full_streams()
        return StorageError.exit_code
    return 1


def record_failure(error: BaseException, attempt: AttemptDir, rank: int) -> None:
    """Write error-<rank>.json."""
    hint = error.hint if isinstance(error, RampupError) else ""
    found = {
        "t": time.time(),
        "rank": rank,
        "type": type(error).__name__,
        "message": _message(error),
        "hint": hint,
        **_locate(error),
    }
    # The disk may be what failed: then the exit code is all that is left, and the launcher knows
    # it.
    with contextlib.suppress(OSError):
        write_json(
            attempt.error_file(rank),
            found | {"traceback": "".join(traceback.format_exception(error))},
        )


def _locate(error: BaseException) -> dict[str, Any]:
    """Return where in the user's own code the error came from; of a library's error the line that
    called the library."""
    frames = traceback.extract_tb(error.__traceback__, limit=-DEEPEST_FRAMES)
    own = [frame for frame in frames if not _is_library(frame.filename)]
    if not own:
        return {}
    return {"file": own[-1].filename, "line": own[-1].lineno or 0, "function": own[-1].name}


def _is_library(file: str) -> bool:
    """Return whether a file belongs to Python, to an installed package, or to rampup."""
    folders = (sysconfig.get_path("stdlib"), str(Path(__file__).parents[1]))
    named = file.startswith("<") and not file.startswith(TYPED)
    return named or "site-packages" in file or file.startswith(folders)


def _message(error: BaseException) -> str:
    """Return the message. Of TensorFlow's long ones only the cause, which comes last, before the
    names of nodes."""
    text = str(error)
    if not text.startswith(ANNOUNCES):
        return text
    lines = [line.strip() for line in text.splitlines()]
    return [line for line in lines if line and not line.startswith("[[")][-1].removeprefix(
        f"{type(error).__name__}: "
    )


def _format(error: BaseException) -> str:
    if not isinstance(error, RampupError) or os.environ.get("RAMPUP_DEBUG"):
        return "".join(traceback.format_exception(error))
    return f"error: {error.message}" + (f"\nhint: {error.hint}" if error.hint else "")


def _silence_full_streams() -> None:
    """A stream that can't be flushed would make Python leave with 120 instead of our code."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
