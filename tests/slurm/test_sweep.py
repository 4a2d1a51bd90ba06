"""`rampup sweep` on a real Slurm: arrays, packs, what is started again and what is left alone."""

import json
import os
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from rampup.rundir.files import RunDir
from rampup.runs.state import SUBMITTED_WITHIN_S

from .conftest import Sandbox

BAD = ("7", "77", "177")
SOME_FAIL = f"""
case $1 in {"|".join(BAD)}) [ -e fixed ] || exit 3 ;; esac
"""
TOGETHER = """
import os, pathlib, sys, time
mark = pathlib.Path(sys.argv[2])
mark.mkdir(exist_ok=True)
(mark / sys.argv[1]).touch()
if sys.argv[1] == "bad":
    sys.exit(3)
deadline = time.monotonic() + 30
while len(list(mark.iterdir())) < 3 and time.monotonic() < deadline:
    time.sleep(0.05)
together = len(list(mark.iterdir()))
print(together, "go at once, GPU", os.environ["CUDA_VISIBLE_DEVICES"], "of", os.environ["SLURM_GPUS_ON_NODE"],
      "CPUs", os.environ["SLURM_CPUS_ON_NODE"], "memory", os.environ["SLURM_MEM_PER_NODE"])
time.sleep(float(sys.argv[3]))
"""


SLOW_TO_SAVE = """
import time
import rampup

run = rampup.init()
while not run.should_stop:
    time.sleep(0.05)
time.sleep(3)
print("saved")
"""


def wrapped(cli: Any, tmp_path: Path, name: str, text: str) -> Path:
    """A program that stands before the real one; each call is noted in the file that is
    returned."""
    folder, calls = tmp_path / "bin", tmp_path / "calls"
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(
        f'#!/bin/bash\necho "{name} $*" >> {calls}\n{text}\nexec /usr/bin/{name} "$@"\n'
    )
    (folder / name).chmod(0o755)
    cli.env["PATH"] = f"{folder}:{cli.env['PATH'].removeprefix(f'{folder}:')}"
    return calls


def submissions(calls: Path) -> int:
    """Calls of sbatch that were no trial."""
    return sum(
        line.startswith("sbatch") and "--test-only" not in line
        for line in calls.read_text().splitlines()
    )


def states_of(cli: Any, study: str) -> Counter[str]:
    return Counter(row["state"] for row in cli.json("list", "--study", study))


def rows_of(cli: Any, study: str, key: str = "p") -> dict[str, dict[str, Any]]:
    return {
        str(row["columns"][key]): row
        for row in cli.json("list", "--study", study, "--columns", key)
    }


@pytest.fixture
def small_arrays(cli: Any, another: Sandbox) -> Sandbox:
    another.up("--nodes", "2", "--no-accounting", "--max-array-size", "50")
    cli.env["XDG_CONFIG_HOME"] = another.env["XDG_CONFIG_HOME"]
    return another


def test_two_hundred_runs_are_four_arrays(cli: Any, small_arrays: Sandbox, tmp_path: Path) -> None:
    calls = wrapped(cli, tmp_path, "sbatch", "")
    cli.script(SOME_FAIL, "some_fail.sh")
    values = ",".join(map(str, range(200)))
    words = ("sweep", f"p={values}", "--on", small_arrays.name, "--name", "big", "--slurm", "hold")
    command = ("--", "bash", "some_fail.sh", "{p}")
    begun = time.monotonic()
    cli(*words, *command)
    assert time.monotonic() - begun < 10, (
        "make bench holds it to 3 s on a machine that does nothing else"
    )
    assert submissions(calls) == 4
    assert states_of(cli, "big") == {"pending": 200}

    found = rows_of(cli, "big")
    # those alone are let go: 200 jobs would take a minute
    chosen = [*BAD, *("1", "60", "120", "199")]
    jobs = {p: RunDir(found[p]["dir"]).recorded("submitted")["job"] for p in found}
    for p in chosen:
        small_arrays.run("scontrol", "release", jobs[p])
    small_arrays.wait_for(lambda: states_of(cli, "big")["failed"] == 3, "three fail")
    small_arrays.wait_for(
        lambda: states_of(cli, "big") == {"pending": 193, "failed": 3, "completed": 4},
        "four do not",
    )
    told = cli("list", "--study", "big").stderr
    assert "200 runs: 4 completed, 193 pending, 3 failed" in told
    assert all(f"{found[p]['id']} failed: rank 0 on node" in told for p in BAD)

    (cli.cwd / "fixed").touch()
    again = cli(*words[:-2], *command).stderr
    assert (
        "200 runs (4 done, 193 running, 3 started again)" in again
        and "submitted 3 runs as 1 array" in again
    )
    assert submissions(calls) == 5
    small_arrays.wait_for(
        lambda: states_of(cli, "big") == {"pending": 193, "completed": 7}, "they do not fail again"
    )
    now = rows_of(cli, "big")
    assert [p for p in now if now[p]["attempts"] == 2] == sorted(BAD, key=int, reverse=True)
    assert all(now[p]["dir"] == found[p]["dir"] for p in BAD)

    cancels = wrapped(cli, tmp_path, "scancel", "")
    cancels.unlink()
    assert Counter(cli.json("cancel", "--study", "big").values()) == {
        "cancelled": 193,
        "already completed": 7,
    }
    assert len(cancels.read_text().splitlines()) == 4, "one for each array"
    assert small_arrays.run("squeue", "--noheader").strip() == ""


def test_one_task_of_an_array_is_cancelled_alone(cli: Any, sandbox: Sandbox) -> None:
    cli(
        "sweep",
        "p=1,2,3",
        "--on",
        sandbox.name,
        "--name",
        "tasks",
        "--throttle",
        "2",
        "--",
        "sleep",
        "300",
    )
    sandbox.wait_for(lambda: states_of(cli, "tasks") == {"running": 2, "pending": 1}, "two at once")
    found = rows_of(cli, "tasks")
    pending = next(row["id"] for row in found.values() if row["state"] == "pending")
    cli("cancel", pending)
    assert states_of(cli, "tasks") == {"running": 2, "cancelled": 1}
    assert (Path(found["1"]["dir"]) / "job.sh").exists()
    running = next(row for row in rows_of(cli, "tasks").values() if row["state"] == "running")
    job = RunDir(running["dir"]).recorded("submitted")["job"]
    assert (Path(running["dir"]) / f"slurm-{job}.log").exists(), (
        "Slurm's words are in the run's own directory"
    )
    cli("cancel", running["id"])
    assert states_of(cli, "tasks") == {"running": 1, "cancelled": 2}
    cli("cancel", "--study", "tasks")
    assert states_of(cli, "tasks") == {"cancelled": 3}
    assert cli("wait", "--study", "tasks", check=103).stderr.startswith("3 runs: 3 cancelled")


def test_one_array_task_over_its_time_is_requeued_alone(studies_over_time: Sandbox) -> None:
    check_over_time(studies_over_time, "array")


def test_a_pack_over_its_time_is_requeued_for_what_is_left(studies_over_time: Sandbox) -> None:
    check_over_time(studies_over_time, "pack")


def check_over_time(sandbox: Sandbox, study: str) -> None:
    """The long run took several attempts and lost nothing; the short ones were not touched
    again."""
    sandbox.call("timeout", "110", "rampup", "wait", "--study", study)
    rows = json.loads(sandbox.rampup("list", "--study", study, "--columns", "n", "--json").stdout)
    assert {row["state"] for row in rows} == {"completed"}, rows
    (long,) = (RunDir(row["dir"]) for row in rows if row["columns"]["n"] > 100)
    assert {row["attempts"] for row in rows if row["columns"]["n"] < 100} == {1}
    facts = [attempt.facts for attempt in long.attempts()]
    *before, last = [it["outcome"] for it in facts]
    assert (set(before), last) == ({{"array": "again", "pack": "timeout"}[study]}, "completed")
    assert len({it["job"] for it in facts}) == 1
    steps = [row["step"] for row in long.history()]
    assert steps == list(range(1, len(steps) + 1)) and len(steps) >= 200, "each step once"


def test_a_pack_of_three_goes_at_once_and_shares(
    cli: Any, sandbox: Sandbox, tmp_path: Path
) -> None:
    cli.script(TOGETHER, "together.py")
    words = ("sweep", "p=a,bad,b,c", "--on", sandbox.name, "--name", "pack", "--pack", "3")
    command = ("--", sys.executable, "together.py", "{p}", str(tmp_path / "mark"), "8")
    cli(*words, "--mem", "100M", "--gpus-per-node", "1", "--cpus-per-task", "2", *command)
    sandbox.wait_for(
        lambda: states_of(cli, "pack") == {"running": 3, "failed": 1},
        "the fourth takes the free place",
    )
    assert "failed: rank 0 on node" in cli("list", "--study", "pack").stderr, (
        "although the job goes on"
    )
    assert cli("wait", "--study", "pack", check=100).stderr.startswith(
        "4 runs: 3 completed, 1 failed"
    )
    rows = rows_of(cli, "pack")
    said = {
        p: (Path(rows[p]["dir"]) / "attempts/1/rank-0.log").read_text() for p in ("a", "b", "c")
    }
    assert len({words.partition("GPU ")[2].split()[0] for words in said.values()}) >= 2, said
    assert all("of 1 CPUs 2 memory 100" in words for words in said.values()), said
    jobs = {RunDir(row["dir"]).recorded("submitted")["job"] for row in rows.values()}
    assert len(jobs) == 1
    begun = {p: RunDir(rows[p]["dir"]).attempts()[0].facts for p in said}
    latest, first_end = (
        max(it["started"] for it in begun.values()),
        min(it["ended"] for it in begun.values()),
    )
    assert latest < first_end, "there was a moment in which all three ran"


def test_runs_of_a_pack_are_cancelled_one_by_one(cli: Any, sandbox: Sandbox) -> None:
    cli(
        "sweep",
        "p=1,2,3",
        "--on",
        sandbox.name,
        "--name",
        "sleepers",
        "--pack",
        "2",
        "--",
        "sleep",
        "30{p}",
    )
    sandbox.wait_for(
        lambda: states_of(cli, "sleepers") == {"running": 2, "pending": 1}, "two at once"
    )
    found = rows_of(cli, "sleepers")
    cli("cancel", found["3"]["id"])
    cli("cancel", found["1"]["id"])
    assert states_of(cli, "sleepers") == {"running": 1, "cancelled": 2}
    cli("cancel", "--study", "sleepers")
    assert states_of(cli, "sleepers") == {"cancelled": 3}


def test_ids_that_belong_to_another_study_now_are_left_alone(cli: Any, sandbox: Sandbox) -> None:
    """A Slurm that was set up anew gives the same ids again."""
    words = ("sweep", "p=1,2", "--on", sandbox.name, "--slurm", "hold", "--name")
    for study in ("before", "after"):
        cli(*words, study, "--", "true")
    (theirs,) = {row["dir"] for row in rows_of(cli, "after").values() if row["columns"]["p"] == 1}
    job = RunDir(theirs).recorded("submitted")["job"]
    (mine,) = {row["dir"] for row in rows_of(cli, "before").values() if row["columns"]["p"] == 1}
    ours = RunDir(mine).recorded("submitted")
    RunDir(mine).record(
        "submitted", **{key: ours[key] for key in ("scheduler", "cluster", "job_name")}, job=job
    )
    sandbox.run("scancel", ours["job"])
    assert "2 runs (1 running, 1 started again)" in cli(*words, "before", "--", "true").stderr
    waiting = sandbox.run("squeue", "--noheader", "--array", "--states=PENDING", "-o", "%i").split()
    assert job in waiting, "what may be left of the run is ended, and nothing else"
    for study in ("before", "after"):
        cli("cancel", "--study", study)
        assert states_of(cli, study) == {"cancelled": 2}


def test_a_pack_in_which_a_run_saves_is_left_until_it_has(
    cli: Any, sandbox: Sandbox, tmp_path: Path
) -> None:
    cli.script(SLOW_TO_SAVE, "slow.py")
    calls = wrapped(cli, tmp_path, "scancel", "")
    words = ("sweep", "p=1,2,3", "--on", sandbox.name, "--name", "savers", "--pack", "1")
    cli(*words, "--", sys.executable, "slow.py", "{p}")
    sandbox.wait_for(lambda: list(cli.runs.glob("*/attempts/1/listens")), "one runs")
    cli("cancel", "--study", "savers", "--save")
    assert not calls.exists(), "nobody ended the job"
    found = rows_of(cli, "savers")
    assert "saved" in (Path(found["1"]["dir"]) / "attempts/1/rank-0.log").read_text()
    assert [found[p]["attempts"] for p in "123"] == [1, 0, 0]
    assert [found[p]["state"] for p in "23"] == ["cancelled"] * 2


@pytest.mark.parametrize("noticed_by", ["sweep", "cancel", "list"])
def test_a_sweep_that_is_killed_while_it_submits_submits_nothing_twice(
    cli: Any, sandbox: Sandbox, tmp_path: Path, noticed_by: str
) -> None:
    real = '[[ $* == *--test-only* ]] || { /usr/bin/sbatch "$@"; kill -9 $PPID; exit; }'
    calls = wrapped(cli, tmp_path, "sbatch", real)
    words = (
        "sweep",
        "p=1,2",
        "--on",
        sandbox.name,
        "--name",
        "killed",
        "--slurm",
        "hold",
        "--",
        "true",
    )
    cli(*words, check=-signal.SIGKILL)
    wrapped(cli, tmp_path, "sbatch", "")
    if noticed_by == "sweep":
        assert "2 runs (2 running)" in cli(*words).stderr
    if noticed_by == "list":
        time.sleep(SUBMITTED_WITHIN_S)  # so long a run without a job counts as being submitted
        assert [row["state"] for row in cli.json("list", "--study", "killed")] == [
            "pending",
            "pending",
        ]
    assert submissions(calls) == 1
    assert Counter(cli.json("cancel", "--study", "killed").values()) == {"cancelled": 2}


def test_what_a_site_refuses_is_submitted_later(cli: Any, sandbox: Sandbox, tmp_path: Path) -> None:
    """Stand-ins: a limit of arrays and one of jobs, before the real programs."""
    smaller = "sed 's/^\\(MaxArraySize *= \\).*/\\12/'"
    wrapped(
        cli,
        tmp_path,
        "scontrol",
        f"[[ $* == 'show config' ]] && {{ /usr/bin/scontrol $* | {smaller}; exit; }}",
    )
    refuse = f"[[ $* == *--test-only* ]] || [ ! -e {tmp_path}/one ] || {{ echo 'sbatch: error: AssocMaxSubmitJobLimit' >&2"
    wrapped(
        cli,
        tmp_path,
        "sbatch",
        f"{refuse}; exit 1; }}\n[[ $* == *--test-only* ]] || touch {tmp_path}/one",
    )
    words = (
        "sweep",
        "p=1,2,3",
        "--on",
        sandbox.name,
        "--name",
        "refused",
        "--slurm",
        "hold",
        "--",
        "true",
    )
    done = cli(*words, check=4)
    assert (
        "1 of 2 jobs were submitted; then sbatch refused the job: sbatch: error: AssocMaxSubmitJobLimit"
        in done.stderr
    )
    assert "the same sweep, later, submits what is missing" in done.stderr
    os.remove(tmp_path / "one")
    assert "3 runs (2 running, 1 started again)" in cli(*words).stderr
    cli("cancel", "--study", "refused")


def test_a_pack_in_an_allocation_of_ones_own(cli: Any, sandbox: Sandbox, tmp_path: Path) -> None:
    cli.script(TOGETHER, "together.py")
    cli.env["SLURM_CONF"] = sandbox.env["SLURM_CONF"]
    import subprocess

    argv = [
        "salloc",
        "--nodes=1",
        "--ntasks=3",
        "--mem=300",
        "--gpus-per-node=3",
        sys.executable,
        "-m",
        "rampup",
    ]
    words = ["sweep", "p=a,b,c", "--pack", "3", "--gpus-per-node", "1", "--on", sandbox.name, "--"]
    command = [sys.executable, "together.py", "{p}", str(tmp_path / "mark"), "0"]
    done = subprocess.run(
        [*argv, *words, *command], cwd=cli.cwd, env=cli.env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    logs = [path.read_text() for path in cli.runs.glob("*/attempts/1/rank-0.log")]
    assert (
        all(log.startswith("3 go at once") and "memory 100" in log for log in logs)
        and len(logs) == 3
    )
    assert len({log.partition("GPU ")[2].split()[0] for log in logs}) == 3


def test_a_dry_run_shows_the_script_and_changes_nothing(cli: Any, sandbox: Sandbox) -> None:
    done = cli(
        "sweep", "p=1,2,3", "--on", sandbox.name, "--throttle", "2", "--dry-run", "--", "true"
    )
    assert "#SBATCH --array=0-2%2" in done.stdout and "srun" in done.stdout
    assert "1 call of sbatch" in done.stderr
    assert not cli.runs.exists()
