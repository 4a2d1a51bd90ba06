"""Which rank of a run this process is, read from the environment.

rank.py sets the variables in every task, whatever the launcher; torchrun's own variables are
honoured too. Outside of both, a script is a world of one. Nothing here looks at a scheduler's
variables.
"""

import os
import platform
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rampup.errors import RampupError


@dataclass(frozen=True)
class RankContext:
    rank: int = 0
    local_rank: int = 0
    world_size: int = 1
    local_world_size: int = 1
    node: str = ""
    run_dir: Path | None = None
    """None outside rampup: then nothing is written."""
    attempt: int = 1
    started: float = 0.0
    """When the attempt began, in seconds since 1970."""
    threads: int | None = None
    """The CPUs that this rank may use; None when it is not known."""
    stop_at: float | None = None
    """When to stop cleanly, before the time limit ends everything; None without a limit."""


def read_context(environ: Mapping[str, str] = os.environ) -> RankContext:
    run_dir = environ.get("RAMPUP_RUN_DIR")
    world = _number(environ, "WORLD_SIZE", 1)
    return RankContext(
        rank=_number(environ, "RANK", 0),
        local_rank=_number(environ, "LOCAL_RANK", 0),
        world_size=world,
        local_world_size=_number(environ, "LOCAL_WORLD_SIZE", world),
        node=environ.get("RAMPUP_NODE") or platform.node(),
        run_dir=Path(run_dir) if run_dir else None,
        attempt=_number(environ, "RAMPUP_ATTEMPT", 1),
        started=float(environ.get("RAMPUP_STARTED") or time.time()),
        threads=_number(environ, "OMP_NUM_THREADS", 0) or None,
        stop_at=float(environ.get("RAMPUP_STOP_AT") or 0) or None,
    )


def _number(environ: Mapping[str, str], name: str, default: int) -> int:
    # OpenMP allows a list, one per nesting level
    text = (environ.get(name) or str(default)).partition(",")[0]
    try:
        return int(text)
    except ValueError:
        raise RampupError(
            f"{name}={text!r} in the environment is not a whole number", f"unset {name}"
        ) from None
