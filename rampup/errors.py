"""The errors a user can meet. Raised anywhere, caught once: by the command line, which prints
message and hint.

RampupError                 exit 1   something failed
├── UsageError              exit 2   the command line does not make sense
├── Refused                 exit 3   configuration or preflight: nothing was started
├── SchedulerError          exit 4   the scheduler refused or can't be reached
├── Superseded              exit 1   on the job side: a newer attempt of the run has begun, this one must not write
├── NotFinished             exit 101 the run goes on
└── RunNotFound             exit 102 no such run
"""

from collections.abc import Iterable

MOST_LISTED = 60
OUTCOME_CODES = {"completed": 0, "failed": 100, "cancelled": 103, "timeout": 104}
"""Exit codes of `wait` and of a foreground `run`, by the state of the run."""


class RampupError(Exception):
    """What failed, with the value received; `hint` is one command or edit that helps."""

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


class Superseded(RampupError):
    """A newer attempt of the run has begun: whoever still works for an older one leaves quietly."""


class NotFinished(RampupError):
    exit_code = 101


class RunNotFound(RampupError):
    exit_code = 102


def nearest(name: str, known: Iterable[str]) -> str:
    """The hint for an unknown name: the closest known one, and the list; of a long one the closest
    ones."""
    import difflib  # only a mistake pays for it

    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=5, cutoff=0.5)
    listed = ", ".join(close if close and len(names) > MOST_LISTED else names) or "none"
    return f"did you mean {close[0]}? known: {listed}" if close else f"known: {listed}"
