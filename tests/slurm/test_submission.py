"""A run is submitted once, and rampup knows its job, whatever becomes of the processes in between.
The sbatch of these tests is the real one behind a shell script that is slow, dies or lies."""

import os
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from .conftest import Sandbox

PROGRAMS = Path(__file__).parent / "programs"


@pytest.fixture
def odd(cli: Any, sandbox: Sandbox, tmp_path: Path) -> Any:
    """The command line with that sbatch; without ODD_SBATCH it is the real one."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for program in ("sbatch", "squeue", "sacct"):
        shutil.copy(PROGRAMS / f"{program}.sh", folder / program)
        (folder / program).chmod(0o755)
    cli.env["PATH"] = f"{folder}:{cli.env['PATH']}"
    return cli


def begin(odd: Any, how: str, *words: str, command: tuple[str, ...] = ("true",)) -> Any:
    """Start `rampup` as a terminal does: in a process group of its own."""
    odd.env["ODD_SBATCH"] = how
    tail = ("--", *command) if command else ()
    process = odd.start(*words, *tail, start_new_session=True)
    odd.env["ODD_SBATCH"] = ""
    return process


def run_words(sandbox: Sandbox, name: str) -> tuple[str, ...]:
    """A job that can't start: what is in the queue stays there."""
    return ("run", "--on", sandbox.name, "--name", name, "--slurm", "hold")


def jobs_of(sandbox: Sandbox, name: str, every: bool = False) -> list[str]:
    """The jobs of a run that are in the queue; or all that there were."""
    states = "all" if every else "pending,running"
    listed = sandbox.run("squeue", "--noheader", f"--states={states}", "-o", "%i %j")
    rows = [line.split() for line in listed.splitlines()]
    return [job for job, job_name in rows if job_name.rpartition("-")[0] == name]


def wait_for_job(sandbox: Sandbox, name: str) -> str:
    sandbox.wait_for(lambda: jobs_of(sandbox, name), f"{name} is in the queue")
    (job,) = jobs_of(sandbox, name)
    return job


def find_run(odd: Any, name: str) -> Any:
    (found,) = [run for run in odd.json("list") if run["name"] == name]
    return found


def check_one_job(odd: Any, sandbox: Sandbox, name: str) -> None:
    """rampup knows the job, does not start another one, and ends it."""
    run = find_run(odd, name)
    assert run["state"] == "pending", run
    odd("resume", run["id"], check=3)
    assert len(jobs_of(sandbox, name, every=True)) == 1
    odd("cancel", run["id"])
    assert jobs_of(sandbox, name) == []
    assert find_run(odd, name)["state"] == "cancelled"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_a_signal_while_sbatch_answers(odd: Any, sandbox: Sandbox, number: signal.Signals) -> None:
    name = f"sig{number.value}"
    process = begin(odd, "slow after", *run_words(sandbox, name))
    job = wait_for_job(sandbox, name)
    os.killpg(process.pid, number)
    _, err = process.communicate(timeout=30)
    assert "Traceback" not in err
    if number in (signal.SIGINT, signal.SIGTERM):
        assert process.returncode == 0 and f"submitted as job {job}" in err, err
    check_one_job(odd, sandbox, name)


def test_a_slow_controller_is_no_reason_for_a_second_job(odd: Any, sandbox: Sandbox) -> None:
    process = begin(odd, "slow before", *run_words(sandbox, "slow"))
    sandbox.wait_for(lambda: odd.json("list"), "the run is there")
    run = find_run(odd, "slow")
    assert run["state"] == "pending"
    odd("resume", run["id"], check=3)
    process.communicate(timeout=30)
    assert process.returncode == 0
    check_one_job(odd, sandbox, "slow")


def test_killed_before_sbatch_has_reached_slurm(odd: Any, sandbox: Sandbox, tmp_path: Path) -> None:
    """sbatch outlives its caller: until it has ended nobody may say that there is no job."""
    process = begin(odd, "slow before", *run_words(sandbox, "early"))
    sandbox.wait_for((tmp_path / "bin" / "sbatch.began").exists, "sbatch has begun")
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert find_run(odd, "early")["state"] == "pending"
    odd("resume", find_run(odd, "early")["id"], check=3)
    wait_for_job(sandbox, "early")
    time.sleep(0.5)
    check_one_job(odd, sandbox, "early")


def test_cancel_waits_for_a_submission(odd: Any, sandbox: Sandbox) -> None:
    process = begin(odd, "slow before", *run_words(sandbox, "stopped"))
    sandbox.wait_for(lambda: odd.json("list"), "the run is there")
    odd("cancel", find_run(odd, "stopped")["id"])
    process.communicate(timeout=30)
    assert jobs_of(sandbox, "stopped") == []
    assert len(jobs_of(sandbox, "stopped", every=True)) == 1
    assert find_run(odd, "stopped")["state"] == "cancelled"


@pytest.mark.parametrize(
    "how", ["dies", "says nothing", "says more", "says it in words", "fails afterwards"]
)
def test_an_answer_that_is_not_an_id(odd: Any, sandbox: Sandbox, how: str) -> None:
    name = how.replace(" ", "")
    process = begin(odd, how, *run_words(sandbox, name))
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    (job,) = jobs_of(sandbox, name)
    assert f"submitted as job {job}" in err
    check_one_job(odd, sandbox, name)


@pytest.mark.parametrize("how", ["says nothing", "fails afterwards"])
def test_a_job_that_nobody_sees_at_first(odd: Any, sandbox: Sandbox, how: str) -> None:
    """Without a refusal by sbatch itself nobody may write down that there is no job."""
    name = f"late{how.replace(' ', '')}"
    odd.env.update(ODD_SQUEUE="says nothing", ODD_SACCT="says nothing")
    process = begin(odd, how, *run_words(sandbox, name))
    _, err = process.communicate(timeout=60)
    odd.env.update(ODD_SQUEUE="", ODD_SACCT="")
    assert process.returncode == 4 and "gave no job" in err, err
    check_one_job(odd, sandbox, name)


def test_a_resume_that_is_killed_with_its_answer(odd: Any, sandbox: Sandbox) -> None:
    """A run of this machine that is resumed on Slurm: nothing of it was ever there."""
    odd("run", "--name", "moved", "--", "false", check=100)
    run = find_run(odd, "moved")["id"]
    words = ("resume", run, "--on", sandbox.name, "--slurm", "hold")
    process = begin(odd, "slow after", *words, command=())
    wait_for_job(sandbox, "moved")
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    check_one_job(odd, sandbox, "moved")


def test_a_disk_that_is_full_after_sbatch(odd: Any, sandbox: Sandbox, small_disk: Path) -> None:
    odd.env["ODD_DISK"] = str(small_disk)
    odd.env["RAMPUP_RUNS"] = str(small_disk / "runs")
    process = begin(odd, "fills the disk", *run_words(sandbox, "full"))
    _, err = process.communicate(timeout=60)
    (job,) = jobs_of(sandbox, "full")
    assert "Traceback" not in err and f"job {job}" in err, err
    assert find_run(odd, "full")["state"] == "pending"
    (small_disk / "filler").unlink()
    check_one_job(odd, sandbox, "full")


def test_a_refusal_is_the_cause(odd: Any, sandbox: Sandbox) -> None:
    """What sbatch refuses is not submitted, and the run says why."""
    odd("run", "--name", "stays", "--", "false", check=100)
    run = find_run(odd, "stays")
    before = Path(run["dir"], "config.json").read_text()
    words = ("resume", run["id"], "--on", sandbox.name, "--slurm", "begin=never")
    assert odd(*words, check=None).returncode in (3, 4)
    assert Path(run["dir"], "config.json").read_text() == before
    assert find_run(odd, "stays")["state"] == "failed"
    assert odd("resume", run["id"], check=100)


@pytest.mark.parametrize(
    ("name", "lock"),
    [("sound", ""), ("fails", "raise OSError(37, 'No locks available')"), ("succeeds", "pass")],
)
def test_four_resumes_at_once_start_one_job(
    odd: Any, sandbox: Sandbox, tmp_path: Path, name: str, lock: str
) -> None:
    """Also on a file system that refuses every lock, and on one that grants it to everybody."""
    if lock:
        patch = f"import fcntl\ndef flock(*_):\n    {lock}\nfcntl.flock = fcntl.lockf = flock\n"
        (tmp_path / "sitecustomize.py").write_text(patch)
        odd.env["PYTHONPATH"] = f"{tmp_path}:{odd.env.get('PYTHONPATH', '')}"
    odd("run", "--name", name, "--", "false", check=100)
    run = find_run(odd, name)["id"]
    words = ("resume", run, "--on", sandbox.name, "--slurm", "hold")
    those = [begin(odd, "", *words, command=()) for _ in range(4)]
    codes = sorted(process.wait() for process in those)
    for process in those:
        process.communicate()
    assert codes == [0, 3, 3, 3]
    check_one_job(odd, sandbox, name)


def test_a_sweep_that_is_killed_with_its_answer(odd: Any, sandbox: Sandbox) -> None:
    words = ("sweep", "x=1,2,3", "--on", sandbox.name, "--name", "grid", "--slurm", "hold")
    process = begin(odd, "slow after", *words, command=("true", "{x}"))
    job = wait_for_job(sandbox, "grid").partition("_")[0]
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert {run["state"] for run in odd.json("list")} == {"pending"}
    again = odd(*words, "--", "true", "{x}")
    assert "nothing to start" in again.stderr
    ids = {found.partition("_")[0] for found in jobs_of(sandbox, "grid", every=True)}
    assert ids == {job}
    odd("cancel", "--study", "grid")
    assert jobs_of(sandbox, "grid") == []
