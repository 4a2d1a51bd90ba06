"""How an attempt ended, in a word and a code; written into attempt.json by the launcher."""

import resource
import time
from typing import Any, Literal

from msgspec import Struct

from rampup.errors import OUTCOME_CODES


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
