"""How an attempt ended, in a word and a code; written into attempt.json by the process that runs the
ranks."""

import resource
import time
from collections.abc import Collection
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from rampup.errors import OUTCOME_CODES, START_AGAIN
from rampup.rundir.attempt import AttemptDir
from rampup.rundir.failures import explain_failure


class Outcome(Struct, frozen=True):
    name: Literal["completed", "failed", "cancelled", "timeout", "again"]
    """`again`: the ranks asked to be started once more, which is the launcher's to do."""
    failed_rank: int | None = None
    exit_code: int | None = None
    """The failing rank's own exit code; 128 + n when signal n ended it."""
    cause: str = ""

    @property
    def code(self) -> int:
        return OUTCOME_CODES[self.name]

    def facts(self, started: float) -> dict[str, Any]:
        """What is added to attempt.json at the end."""
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        ended = time.time()
        return {
            "outcome": self.name,
            "exit_code": self.exit_code,
            "failed_rank": self.failed_rank,
            "cause": self.cause,
            "ended": ended,
            "wall_s": round(ended - started, 3),
            "cpu_s": round(used.ru_utime + used.ru_stime, 2),
            "max_rss_mb": round(used.ru_maxrss / 1024, 1),
        }


def conclude(attempt: AttemptDir, codes: Collection[int], is_limited: bool = False) -> Outcome:
    """Return the outcome of an attempt whose ranks all ended as they wanted: done, stopped on
    request or, in a run with a time limit, because of it, or with the wish to be started again."""
    word = attempt.read_again()
    if word == "asked" or (START_AGAIN in codes and word != "stop"):
        return Outcome("again", exit_code=START_AGAIN)
    if word == "timeout" and is_limited:
        return Outcome("timeout", cause="the time limit was reached")
    if word:
        return Outcome("cancelled", exit_code=0, cause="stopped gracefully, on request")
    return Outcome("completed", exit_code=0)


def add_cause(outcome: Outcome, attempt: AttemptDir) -> Outcome:
    """Return a failure with the cause that its files show."""
    if outcome.name != "failed" or outcome.cause:
        return outcome
    failed_rank, cause = explain_failure(attempt, outcome.failed_rank, outcome.exit_code)
    return replace(outcome, failed_rank=failed_rank, cause=cause)
