"""A loop of one's own on two ranks: they agree when to stop, and go on at the same step."""

import json
import os
import subprocess
import sys
from pathlib import Path

from rampup.rundir.files import RunDir

from .conftest import HERE
from .ranks import free_port, variables

LOOP = """
import os, signal, time
import torch, torch.distributed as dist
import rampup

run = rampup.init()
dist.init_process_group("gloo")
state = run.resume() or {"seen": []}
print("from", run.step, flush=True)
for step in range(run.step + 1, 9):
    state["seen"].append(step)
    total = torch.tensor([step])
    dist.all_reduce(total)
    if run.rank == 1 and step == 4 and not run.step:
        os.kill(os.getpid(), signal.SIGTERM)  # only one of them hears of it
        time.sleep(0.1)
    if run.should_stop:
        run.save(state, step)
        break
print("seen", state["seen"], flush=True)
dist.destroy_process_group()
"""


def outputs(run: RunDir, script: Path, attempt: int) -> list[str]:
    run.attempt(attempt).path.mkdir(parents=True)
    port, env = free_port(), {**os.environ, "PYTHONPATH": str(HERE.parents[1])}
    ranks = [
        subprocess.Popen(
            [sys.executable, str(script)],
            env=env | variables(str(run.path), rank, 2, port, attempt),
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in (0, 1)
    ]
    found = [rank.communicate(timeout=60)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0]
    return found


def test_two_ranks_stop_and_go_on_together(tmp_path: Path) -> None:
    script, run = tmp_path / "train.py", RunDir(tmp_path / "run")
    script.write_text(LOOP)
    run.path.mkdir()
    run.config_file.write_text(json.dumps({"train": {}}))
    for output in outputs(run, script, 1):
        assert output == "from 0\nseen [1, 2, 3, 4]\n"
    assert run.attempt(1).again_file.exists(), "written by rank 0, which heard of it from rank 1"
    for output in outputs(run, script, 2):
        assert (
            output.removeprefix("resumed at step 4\n") == "from 4\nseen [1, 2, 3, 4, 5, 6, 7, 8]\n"
        )
