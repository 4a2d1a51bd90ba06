"""The control side: how long a person waits for the command line to answer."""

import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.measure import Line, absolute, command, compare

RAMPUP = str(Path(sys.executable).with_name("rampup"))


@contextmanager
def many_runs(count: int) -> Iterator[dict[str, str]]:
    """An environment whose runs root holds that many finished runs."""
    with tempfile.TemporaryDirectory() as folder:
        for number in range(count):
            write_run(Path(folder) / "runs", number)
        yield {**os.environ, "RAMPUP_RUNS": f"{folder}/runs", "XDG_STATE_HOME": folder}


def write_run(root: Path, number: int) -> None:
    created = 1.7e9 + number
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(created))
    run = root / f"{stamp}-bench-a{number:05d}"
    attempt = run / "attempts" / "1"
    attempt.mkdir(parents=True)
    (run / "run.json").write_text(json.dumps({"id": f"a{number:05d}", "name": "bench", "created": created}))
    (run / "config.json").write_text(json.dumps({"train": {"monitor": "val_accuracy"}, "resources": {}}))
    facts = {"world_size": 2, "outcome": "completed", "exit_code": 0, "wall_s": 12.5, "started": created}
    (attempt / "attempt.json").write_text(json.dumps(facts))
    rows = [json.dumps({"step": 550 * epoch, "epoch": epoch, "val_accuracy": 0.97}) for epoch in range(1, 11)]
    (attempt / "metrics.jsonl").write_text("\n".join(rows) + "\n")


def lines() -> Iterator[Line]:
    python = command([sys.executable, "-c", "pass"])
    yield compare("rampup --help / python -c pass", command([RAMPUP, "--help"]), python, 10, repeats=15)
    with many_runs(20) as env:
        yield compare("rampup list / python -c pass", command([RAMPUP, "list"], env=env), python, 10, repeats=15)
    with many_runs(10_000) as env:
        yield absolute("rampup list --all, 10,000 runs", command([RAMPUP, "list", "--all"], env=env), 1.5)
