"""What must come of each of the twelve functions in functions.py, here and elsewhere."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

PROGRAM = Path(__file__).with_name("functions.py")
RESULTS = {
    "closure": 42,
    "lambda": [41, {"half": 20.5}],
    "class in main": [True, 2],
    "big array": [[62_500_000], 0.0, 62_499_999.0],
    "edited module": "as submitted",
    "print flood": 100_000,
    "torch module": ["Linear", True],
}
"""Those that return something."""
FAILURES = {
    "deep recursion": (0, "RecursionError", "maximum recursion depth exceeded"),
    "odd exception": (1, "OddError", "it has a lock"),
    "sys.exit": (0, "SystemExit", "SystemExit: 3"),
    "kill -9": (1, "", "was killed by SIGKILL"),
}
"""Those that end badly: the rank (where both fail, either may be first), the type of the error, and
words of the message."""
REFUSED = {
    "generator": "argument `batches` can't be sent to the ranks: cannot pickle 'generator' object",
}
"""Those that are refused before anything is started."""
CASES = (*RESULTS, *FAILURES, *REFUSED)


def launch_case(
    case: str, folder: Path, env: Mapping[str, str], timeout_s: float = 120, **options: Any
) -> dict[str, Any]:
    """Launch one of the functions from a script in that folder, and return what came of it."""
    program = folder / PROGRAM.name
    shutil.copyfile(PROGRAM, program)
    done = subprocess.run(
        [sys.executable, str(program), case, json.dumps(options)],
        cwd=folder,
        env=dict(env),
        capture_output=True,
        text=True,
        timeout=timeout_s,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found | {"printed": len(done.stdout), "said": done.stderr}


def check_case(case: str, outcome: Mapping[str, Any]) -> None:
    """Compare with what was written down before."""
    if case in RESULTS:
        assert outcome.get("result") == RESULTS[case], outcome
    elif case in REFUSED:
        assert REFUSED[case] in outcome["error"], outcome
        assert outcome["notes"], "with a hint"
    else:
        rank, kind, words = FAILURES[case]
        assert words in outcome["failed"], outcome
        assert outcome["type"] == kind
        both_fail = case in ("deep recursion", "sys.exit")
        assert outcome["rank"] == rank or (both_fail and outcome["rank"] in (0, 1))
        assert outcome.get("at_the_line", True), outcome
        assert kind == "" or re.search(r"\(functions\.py, line \d+\)", outcome["failed"]), outcome
