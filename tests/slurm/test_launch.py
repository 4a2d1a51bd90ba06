"""`rampup.launch` on a real Slurm: four of the hostile functions, and a run that is killed and
requeued."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hostile.cases import check_case, launch_case

from rampup.rundir.files import RunDir

from .conftest import Sandbox

RESUMES = """
import os, sys, time
import rampup

def count(last):
    run = rampup.init()
    state = run.resume() or {"sum": 0.0, "seen": []}
    for step in range(run.step + 1, last + 1):
        state["sum"] += 1.0 / step
        state["seen"].append(step)
        stop = run.should_stop
        if stop or step % 2 == 0:
            run.save(state, step)
        if stop:
            break
        if step == 5 and not run.step:
            print("ready", flush=True)
            time.sleep(60)
    run.finish()
    return [state["sum"], state["seen"], int(os.environ["RAMPUP_ATTEMPT"])]

if __name__ == "__main__":
    job = rampup.launch(count, 8, nodes=2, on=sys.argv[1], wait=False)
    print(job.id, job.dir, flush=True)
"""
ATTACH = "import sys, json, rampup; print(json.dumps(rampup.attach(sys.argv[1]).result()))"


@pytest.mark.parametrize("case", ["closure", "odd exception", "kill -9", "torch module"])
def test_a_hostile_function_on_two_nodes(case: str, sandbox: Sandbox, tmp_path: Path) -> None:
    outcome = launch_case(case, tmp_path, sandbox.env, on=sandbox.name, nodes=2)
    check_case(case, outcome)


def start(sandbox: Sandbox) -> tuple[str, RunDir]:
    (sandbox.cwd / "count.py").write_text(RESUMES)
    done = sandbox.call(sys.executable, "count.py", sandbox.name)
    assert done.returncode == 0, done.stderr
    run, place = done.stdout.splitlines()[-1].split()
    log = Path(place) / "attempts" / "1" / "rank-0.log"
    sandbox.wait_for(lambda: log.exists() and "ready" in log.read_text(), "rank 0 has saved", 60)
    return run, RunDir(place)


def read_result(sandbox: Sandbox, run: str) -> Any:
    done = sandbox.call(sys.executable, "-c", ATTACH, run)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_killed_and_requeued_it_ends_with_the_same_result(sandbox: Sandbox) -> None:
    run, place = start(sandbox)
    job = place.attempt(1).facts["job"]
    sandbox.run("scontrol", "requeue", job)
    sandbox.run("scontrol", "update", f"jobid={job}", "starttime=now", check=None)
    total, seen, attempt = read_result(sandbox, run)
    assert attempt == 2
    assert seen == list(range(1, 9)), "no step was lost or done twice"
    assert total == sum(1.0 / step for step in range(1, 9))


def test_ctrl_c_leaves_the_job_alone(sandbox: Sandbox) -> None:
    """It stops waiting, and says how to come back."""
    text = RESUMES.replace("wait=False", "name='left'").replace("time.sleep(60)", "time.sleep(5)")
    (sandbox.cwd / "left.py").write_text(text)
    started = subprocess.Popen(
        [sys.executable, "left.py", sandbox.name],
        cwd=sandbox.cwd,
        env=sandbox.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert started.stdout is not None
    for line in started.stdout:
        if line == "ready\n":
            break
    started.send_signal(2)
    _, said = started.communicate(timeout=60)
    (hint,) = [line for line in said.splitlines() if line.startswith("next: ")]
    run = hint.partition("'")[2].partition("'")[0]
    assert hint == f"next: rampup.attach('{run}').result()"
    assert read_result(sandbox, run)[1:] == [list(range(1, 9)), 1]
