"""One rank of a run that `rampup.launch` started: `python -m rampup.runtime.function RUN_DIR`.

rank.py starts it once for every rank. It reads the call from the run directory, makes the caller's
own modules importable, calls the function, and on rank 0 writes down what it returned. It imports no
framework, joins no process group and takes no signal: all of that is the function's.
"""

import io
import linecache
import pickle
import signal
import sys
import traceback
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from rampup.core.spec import FunctionInfo
from rampup.errors import RampupError, Superseded
from rampup.rundir import private
from rampup.rundir.attempt import AttemptDir
from rampup.rundir.files import RunDir
from rampup.rundir.results import write_result
from rampup.runtime import failure
from rampup.runtime.context import read_context
from rampup.runtime.quick_exit import exit_now
from rampup.runtime.storage import guard_writes

TERMINATED = 128 + signal.SIGTERM
"""How rampup.init() lets a rank end that gets SIGTERM and does not look at should_stop."""


class Call(NamedTuple):
    """What every rank does."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print("usage: python -m rampup.runtime.function RUN_DIR", file=sys.stderr)
        return 2
    sys.excepthook = print_exception
    run, context = RunDir(Path(arguments[0]).absolute()), read_context()
    attempt = run.attempt(context.attempt)
    try:
        call = load_call(run)
    except Exception as error:
        return failure.report_failure(error, attempt, context.rank)
    try:
        value = call.function(*call.args, **call.kwargs)
    except SystemExit as asked:
        if asked.code not in (None, 0):
            return end_as_asked(asked, attempt, context.rank)
        value = None
    except BaseException as error:
        return report_exception(error, attempt, context.rank)
    if context.rank == 0:
        try:
            with guard_writes(attempt.result_file):
                write_result(attempt, run.id, value)
        except Exception as error:
            return failure.report_failure(error, attempt, context.rank)
    return 0


def load_call(run: RunDir) -> Call:
    """Return the call as it was submitted, with the caller's own modules importable."""
    info = msgspec.convert(run.config.get("function"), FunctionInfo)
    check_versions(info)
    content = private.read(run.call_file)
    if sha256(content).hexdigest() != info.sha256:
        raise RampupError(f"{run.call_file} is not what was submitted", "launch the function again")
    sys.path[:0] = [folder for folder in info.path if folder not in sys.path]
    try:
        stream = io.BytesIO(content)
        sources = pickle.load(stream)
        function, args, kwargs = pickle.load(stream)
    except (ImportError, AttributeError) as error:
        hint = "the ranks import it by its name: is it installed in their environment (env=)?"
        raise RampupError(f"can't load {info.name}: {error}", hint) from error
    for name, lines in sources.items():  # cells of a notebook have no file
        linecache.cache[name] = (sum(map(len, lines)), None, lines, name)
    return Call(function, args, kwargs)


def check_versions(info: FunctionInfo) -> None:
    """Refuse a call that another Python wrote: the code inside of it would crash, or worse."""
    mine = f"{sys.version_info.major}.{sys.version_info.minor}"
    if info.python != mine:
        raise RampupError(
            f"the ranks run Python {mine}, but {info.name} was sent from Python {info.python}",
            "env=PATH chooses the environment of the ranks",
        )
    if not info.cloudpickle:
        return
    try:
        import cloudpickle
    except ImportError:
        hint = f"pip install cloudpickle=={info.cloudpickle}"
        raise RampupError(f"{sys.executable} has no cloudpickle", hint) from None
    if cloudpickle.__version__ != info.cloudpickle:
        raise RampupError(
            f"the ranks have cloudpickle {cloudpickle.__version__}, but {info.name} was sent with "
            f"{info.cloudpickle}",
            f"{sys.executable} -m pip install cloudpickle=={info.cloudpickle}",
        )


def end_as_asked(asked: SystemExit, attempt: AttemptDir, rank: int) -> int:
    """Return the exit code of a function that called sys.exit() with another one than 0. That is a
    failure with a line, but a rank that was ended because another one failed has nothing to report."""
    if asked.code == TERMINATED:
        return TERMINATED
    report_exception(asked, attempt, rank)
    return asked.code if isinstance(asked.code, int) and 0 < asked.code < 256 else 1


def report_exception(error: BaseException, attempt: AttemptDir, rank: int) -> int:
    """Report what the function raised, as Python would have done, and return the exit code."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # this rank ends by itself, and is heard
    if error.__traceback__ is not None:
        error.__traceback__ = error.__traceback__.tb_next  # the function's own frames
    failure.record_failure(error, attempt, rank)
    if isinstance(error, Superseded | RampupError) and sys.excepthook is print_exception:
        return failure.report_failure(error, attempt, rank)
    # rampup.init() has put its hook here: it ends the run's own records, and prints
    sys.excepthook(type(error), error, error.__traceback__)
    return 1


def print_exception(*error: Any) -> None:
    """Print a traceback with the lines of a notebook's cells, which Python's own hook does not have:
    it reads files only."""
    traceback.print_exception(*error)


if __name__ == "__main__":
    exit_now(main(sys.argv[1:]))
