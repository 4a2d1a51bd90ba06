"""Runs for the tests of verbs that read: made by hand, as their files would be."""

import json
import time
from pathlib import Path
from typing import Any

from rampup.rundir.files import RunDir, run_directory


def make_run(
    root: Path,
    run_id: str,
    name: str = "digits",
    age_s: float = 60.0,
    config: dict[str, Any] | None = None,
    code: dict[str, Any] | None = None,
    attempts: tuple[dict[str, Any], ...] = ({},),
) -> RunDir:
    """A run that was made `age_s` seconds ago. Each attempt has these facts, and completed if they
    do not say otherwise."""
    created = time.time() - age_s
    run = RunDir(run_directory(root, name, run_id, created))
    run.path.mkdir(parents=True)
    write(run.run_file, {"id": run_id, "name": name, "created": created})
    write(run.config_file, config or {})
    write(run.env_file, {"packages": {"rampup": "0.1.0"}, "code": code})
    for facts in attempts:
        attempt = run.claim_attempt()
        usual = {"started": created, "ended": created + 5, "world_size": 1, "host": "vm", "pid": 1}
        write(attempt.facts_file, {**usual, "outcome": "completed", "exit_code": 0, **facts})
    return run


def write(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value) + "\n")
