"""`pytest` trains for a few epochs on two ranks, and looks at what came out."""

import json
import os
import subprocess
from pathlib import Path


def test_it_learns(tmp_path: Path) -> None:
    words = ["rampup", "run", "max_epochs=4", "--tasks-per-node", "2", "--json"]
    own_runs = {**os.environ, "RAMPUP_RUNS": str(tmp_path)}
    done = subprocess.run(
        words, cwd=Path(__file__).parent, env=own_runs, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    run = json.loads(done.stdout)
    assert run["state"] == "completed"
    assert run["metrics"]["val_accuracy"] > 0.8
