"""One task of a real job step: imports lightning once, then is a rank of many runs after one
another, each in a fork.

    python lightning_ranks.py CASES.json      exits with 1 when a rank of a run does

rank.py has set the variables of this rank; only the run directory and the attempt are others in
each fork.
"""

import importlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "multirank"))

import ranks

# the watcher of this job samples for the outer run; those in the forks sample for themselves
os.environ.pop("RAMPUP_SUPERVISED", None)
OWN = {
    name: os.environ[name]
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "RAMPUP_NODE")
}


def variables(folder: str, rank: int, world: int, port: int, attempt: int = 1) -> dict[str, str]:
    started = {
        "RAMPUP_RUN_DIR": folder,
        "RAMPUP_ATTEMPT": str(attempt),
        "RAMPUP_STARTED": str(time.time()),
    }
    return {**OWN, **started, "PYTHONUNBUFFERED": "1"}


def run(case: dict[str, Any], rank: int, world: int) -> int:
    """A stop at the first attempt, and the second goes on; what the ranks return."""
    code = 0
    for attempt in (1, 2):
        folder = Path(case["dir"], "attempts", str(attempt))
        if rank == 0:
            folder.mkdir(parents=True, exist_ok=True)
        while not folder.is_dir():
            time.sleep(0.05)
        pid = ranks.fork({**case, "attempt": attempt, "world": world}, rank, 0)
        code = code or os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return code


if __name__ == "__main__":
    ranks.variables = variables
    for module in ranks.IMPORTED_ONCE["lightning"]:
        importlib.import_module(module)
    cases = json.loads(Path(sys.argv[1]).read_text())
    codes = {
        name: run(case, int(OWN["RANK"]), int(OWN["WORLD_SIZE"])) for name, case in cases.items()
    }
    print(codes)
    sys.exit(any(codes.values()))
