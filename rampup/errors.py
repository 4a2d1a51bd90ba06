"""The errors that a user can meet, and every exit code of the project.

Errors are raised anywhere and caught once: by the command line, which prints message and hint.

RampupError                 exit 1    something failed
├── UsageError              exit 2    the command line does not make sense
├── Refused                 exit 3    configuration or preflight: nothing was started
├── SchedulerError          exit 4    the scheduler refused or can't be reached
├── Superseded              exit 1    in a job: a newer attempt of the run has begun
├── LostPeer                exit 1    in a job: another rank is gone, and its error counts
├── StorageError            exit 74   in a job: the run directory can't be written
├── RunFailed               exit 100  the function of rampup.launch failed on a rank
├── NotFinished             exit 101  the run has not ended yet
└── RunNotFound             exit 102  no such run

The exit codes, and which program ends with them:

code      program               meaning
0         all                   it did what it was asked to do
1         rampup                something failed
2         rampup                the command line does not make sense
3         rampup                refused: nothing was started
4         rampup                the scheduler refused or can't be reached
1         worker                the training failed; error-<rank>.json says why
74        worker                the run directory can't be written (EX_IOERR)
78        job script            the software environment is not ready (EX_CONFIG)
85        the user's program    asks rampup to restart it, in a new attempt
97        rank.py               this rank or another one is not ready
98        rank.py               the ports are taken; the launcher tries others
100       rampup run, wait      the run failed
101       rampup                the run has not ended yet
102       rampup                no such run
103       rampup run, wait      the run was cancelled
104       rampup run, wait      the run reached its time limit
126, 127  rank.py               the program can't be executed, or was not found
128 + n   all                   signal n ended it
130       rampup                Ctrl-C

rank.py runs without rampup and repeats its codes; a test compares them with these.
"""

from collections.abc import Iterable, Mapping
from typing import Any

STORAGE_FAILED = 74
ENVIRONMENT_NOT_READY = 78
START_AGAIN = 85
RANK_NOT_READY = 97
PORT_TAKEN = 98
RUN_FAILED, RUN_CANCELLED, RUN_TIMED_OUT = 100, 103, 104
NOT_EXECUTABLE, NOT_FOUND = 126, 127
INTERRUPTED = 130
OUTCOME_CODES = {
    "completed": 0,
    "failed": RUN_FAILED,
    "cancelled": RUN_CANCELLED,
    "timeout": RUN_TIMED_OUT,
}
"""Exit codes of `wait` and of a foreground `run`, by the state of the run."""
MOST_LISTED = 30
NO_ERROR: Mapping[str, Any] = {}


class RampupError(Exception):
    """The message says what failed, with the value received; the hint is one command or edit that
    helps."""

    exit_code = 1

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(RampupError):
    exit_code = 2


class Refused(RampupError):
    """The configuration or the preflight checks do not allow the run, and nothing was started."""

    exit_code = 3


class SchedulerError(RampupError):
    exit_code = 4


class Rejected(SchedulerError):
    """The scheduler does not take the job, and says why: there is none."""


class Superseded(RampupError):
    """A newer attempt of the run has begun: a process of an older one ends quietly."""


class LostPeer(RampupError):
    """Another rank of this attempt is gone; the run itself may be continued."""


class RunFailed(RampupError):
    """A run of `rampup.launch` has no result: it failed, was cancelled, or reached its time limit.

    `rank`, `type`, `file` and `line` say where, as far as it is known; `state` is the state of the
    run, `run` its id, and `traceback` the text that the rank printed.
    """

    exit_code = RUN_FAILED

    def __init__(
        self,
        message: str,
        hint: str = "",
        *,
        run: str = "",
        state: str = "failed",
        rank: int | None = None,
        error: Mapping[str, Any] = NO_ERROR,
    ) -> None:
        """`error` is what the rank recorded when it failed."""
        super().__init__(message, hint)
        self.run, self.state, self.rank = run, state, rank
        self.type: str = error.get("type", "")
        self.file: str = error.get("file", "")
        self.line: int | None = error.get("line")
        self.traceback: str = error.get("traceback", "")


class NotFinished(RampupError):
    exit_code = 101


class RunNotFound(RampupError):
    exit_code = 102


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the hint for an unknown name: the closest known one, and the list. In place of a long
    list the other close names are shown."""
    import difflib  # only a mistake pays for it

    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=5, cutoff=0.5)
    if not close:
        return f"known: {', '.join(names) or 'none'}"
    if len(names) <= MOST_LISTED:
        return f"did you mean {close[0]}? known: {', '.join(names)}"
    others = f" also close: {', '.join(close[1:])}" if close[1:] else ""
    return f"did you mean {close[0]}?{others}"


def undefined(task: object, method: str, hint: str) -> RampupError:
    """Return the error for a method that a task must define and does not."""
    return RampupError(f"{type(task).__name__} has no {method}()", hint)
