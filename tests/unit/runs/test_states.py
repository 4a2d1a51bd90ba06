"""What is said of a run on a cluster, from what its directory says and what Slurm says."""

import os
import time
from pathlib import Path
from typing import Any

import pytest

from rampup.core import processes
from rampup.core.spec import Cluster
from rampup.rundir import claims, records
from rampup.rundir import files as rundir
from rampup.rundir.files import RunDir
from rampup.runs import places
from rampup.runs import state as states
from rampup.runs import submissions as lost_submissions
from rampup.schedulers.base import job_key
from rampup.schedulers.held_start import Gate
from rampup.schedulers.local import start_recorded
from rampup.schedulers.slurm import query as slurm_query
from rampup.schedulers.slurm import submit
from rampup.schedulers.slurm.jobs import SlurmJob
from rampup.schedulers.slurm.query import SlurmAnswer

SITE = Cluster(name="site", scheduler="slurm")
BEGUN: dict[str, Any] = {
    "launcher": "srun",
    "job": "7",
    "host": "node1",
    "started": 100.0,
    "world_size": 2,
}
FAILED = {**BEGUN, "outcome": "failed", "exit_code": 143, "ended": 160.0}
STOPPED = {**BEGUN, "outcome": "stopped", "exit_code": 143, "ended": 160.0}
COMPLETED = {**BEGUN, "outcome": "completed", "exit_code": 0, "ended": 160.0}


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    identity = {"id": "abc234", "name": "it", "created": 90.0}
    made = RunDir(tmp_path / "20260101-000000-it-abc234")
    with rundir.create_run(made.path, identity):
        pass
    gone = {"name": "site", "scheduler": "slurm", "slurm_conf": str(tmp_path / "gone.conf")}
    records.write_json(made.config_file, {"time_s": 60, "cluster": gone})
    return made


def submitted(run: RunDir, job: str = "7", t: float = 95.0, **more: Any) -> None:
    record = {
        "what": "submitted",
        "t": t,
        "scheduler": "slurm",
        "cluster": "site",
        "job": job,
        **more,
    }
    records.append_json(run.control_file, record)


def attempt(run: RunDir, facts: dict[str, Any]) -> None:
    records.write_json(run.claim_attempt().facts_file, facts)


def told(
    run: RunDir, monkeypatch: pytest.MonkeyPatch, *jobs: tuple[str, str], problem: str = ""
) -> states.State:
    """The state when Slurm says this of these jobs."""
    answer = SlurmAnswer(
        {job_key(job, "it-abc234"): SlurmJob(state) for job, state in jobs}, time.time(), problem
    )
    for module in (places, lost_submissions):
        monkeypatch.setattr(module, "of_run", lambda name, kept, is_obeyed: SITE)
    monkeypatch.setattr(slurm_query, "ask", lambda cluster, keys, fresh_s: answer)
    return states.state_of(run)


@pytest.mark.parametrize(
    ("facts", "slurm", "state"),
    [
        (BEGUN, "RUNNING", "running"),
        (BEGUN, "CANCELLED", "cancelled"),
        (BEGUN, "TIMEOUT", "timeout"),
        (BEGUN, "NODE_FAIL", "failed"),
        (BEGUN, "PENDING", "pending"),  # requeued
        (STOPPED, "TIMEOUT", "timeout"),
        (STOPPED, "CANCELLED", "cancelled"),
        (STOPPED, "COMPLETING", "running"),
        (STOPPED, "PENDING", "pending"),
        (STOPPED, "FAILED", "failed"),
        (FAILED, "FAILED", "failed"),
        (FAILED, "COMPLETING", "failed"),
        (FAILED, "COMPLETED", "failed"),
        (FAILED, "TIMEOUT", "timeout"),  # srun was quicker than the signal to the script
        (FAILED, "CANCELLED", "cancelled"),
        (FAILED, "PENDING", "pending"),  # a node failed, Slurm starts the job anew
        (FAILED, "OUT_OF_MEMORY", "failed"),
        (COMPLETED, "COMPLETING", "completed"),
    ],
)
def test_files_and_slurm_together(
    run: RunDir, monkeypatch: pytest.MonkeyPatch, facts: dict[str, Any], slurm: str, state: str
) -> None:
    submitted(run)
    attempt(run, facts)
    found = told(run, monkeypatch, ("7", slurm))
    assert found.name == state
    assert found.cause or state in ("running", "completed", "pending")


@pytest.mark.parametrize("kept", ["PENDING", "FAILED"])  # FAILED: requeued by hand
def test_a_kept_answer_from_before_the_start_is_asked_for_anew(
    run: RunDir, monkeypatch: pytest.MonkeyPatch, kept: str
) -> None:
    key, asked = job_key("7", "it-abc234"), []
    submitted(run)
    if kept == "FAILED":
        run.record("ended", job=key, state="FAILED", reason="")
    attempt(run, {**BEGUN, "started": time.time()})

    def answer(_: Cluster, keys: Any, fresh_s: float) -> SlurmAnswer:
        asked.append(fresh_s)
        if fresh_s:
            return SlurmAnswer({key: SlurmJob(kept)}, time.time() - 1)
        return SlurmAnswer({key: SlurmJob("RUNNING")}, time.time())

    for module in (places, lost_submissions):
        monkeypatch.setattr(module, "of_run", lambda name, kept, is_obeyed: SITE)
    monkeypatch.setattr(slurm_query, "ask", answer)
    assert states.state_of(run).name == "running"
    assert asked == [states.FRESH_S, 0.0]


@pytest.mark.parametrize(
    ("facts", "state"), [(FAILED, "failed"), (COMPLETED, "completed"), (STOPPED, "timeout")]
)
def test_a_slurm_that_has_forgotten(
    run: RunDir, monkeypatch: pytest.MonkeyPatch, facts: dict[str, Any], state: str
) -> None:
    submitted(run)
    attempt(run, facts)
    assert told(run, monkeypatch).name == state


def test_a_failure_needs_no_answer(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    submitted(run)
    attempt(run, FAILED)
    assert told(run, monkeypatch, ("7", "RUNNING"), problem="no answer").name == "failed"


def test_a_script_started_by_hand_is_the_job_that_counts(
    run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    submitted(run, "7")
    attempt(run, COMPLETED)
    attempt(run, {**BEGUN, "job": "9", "started": 200.0})
    jobs = (("7", "COMPLETED"), ("9", "RUNNING"))
    assert told(run, monkeypatch, *jobs).name == "running"
    assert states.find_job(states.observe(run), run.recorded("submitted") or {}) == (
        "site",
        "9",
        "it-abc234",
    )


def test_by_hand_after_a_refused_submission(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    attempt(run, {**BEGUN, "job": "9"})
    assert told(run, monkeypatch, ("9", "TIMEOUT")).name == "timeout"


def test_a_new_submission_counts_before_it_begins(
    run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    submitted(run, "7")
    attempt(run, STOPPED)
    submitted(run, "8", t=300.0)
    assert told(run, monkeypatch, ("7", "TIMEOUT"), ("8", "PENDING")).name == "pending"


def test_a_new_submission_counts_though_the_clock_of_a_node_is_ahead(
    run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    submitted(run, "7", after=0)
    attempt(run, {**FAILED, "started": 900.0, "ended": 960.0})
    submitted(run, "8", t=300.0, after=1)
    assert told(run, monkeypatch, ("7", "FAILED"), ("8", "PENDING")).name == "pending"
    attempt(run, {**FAILED, "job": "7", "started": 100.0, "ended": 160.0})  # 7, requeued by hand
    assert told(run, monkeypatch, ("7", "RUNNING"), ("8", "CANCELLED")).name == "running"


def lose_answer(run: RunDir, after: int, **more: Any) -> None:
    lost = {"what": "submitting", "t": 300.0, "number": 2, "cluster": "site", "after": after}
    records.append_json(run.control_file, {**lost, "job_name": "it-abc234", **more})


def test_the_job_of_a_lost_answer_is_one_that_no_attempt_had(
    run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    submitted(run, "7", after=0)
    attempt(run, {**STOPPED, "next_job": "8"})
    attempt(run, {**FAILED, "job": "8"})
    lose_answer(run, after=2)
    monkeypatch.setattr(
        submit, "find_by_name", lambda cluster, names, *limits: {"it-abc234": ["7", "8", "9"]}
    )
    assert told(run, monkeypatch, ("8", "FAILED"), ("9", "PENDING")).name == "pending"
    assert run.jobs()[-1] == "9"


@pytest.mark.parametrize(
    ("asked", "begun", "ended"),
    [
        ({}, False, ["8"]),
        ({}, True, []),
        ({"task": 2}, False, ["8_2"]),
        ({"task": 2, "packed": True}, False, ["8"]),
    ],
)
def test_of_two_jobs_of_a_lost_answer_one_stays(
    run: RunDir,
    monkeypatch: pytest.MonkeyPatch,
    asked: dict[str, Any],
    begun: bool,
    ended: list[str],
) -> None:
    """One that began may have put the other behind itself."""
    lose_answer(run, after=0, **asked)
    if begun:
        attempt(run, {**BEGUN, "job": "6"})
    found = ["7", "8"]
    monkeypatch.setattr(
        submit, "find_by_name", lambda cluster, names, *limits: {"it-abc234": found}
    )
    said: list[str] = []
    monkeypatch.setattr(submit, "cancel_jobs", lambda cluster, name, jobs: said.extend(jobs))
    told(run, monkeypatch, ("7", "PENDING"))
    kept = [claims.name_job(asked, "7")]
    assert said == ended and [job for job in run.jobs() if job != "6"] == kept


def test_a_cancel_of_an_earlier_attempt_is_history(
    run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    submitted(run)
    records.append_json(run.control_file, {"what": "cancelled", "t": 150.0})
    attempt(run, STOPPED)
    assert told(run, monkeypatch).name == "cancelled"
    attempt(run, {**STOPPED, "started": 200.0, "ended": 205.0})
    assert told(run, monkeypatch).name == "failed"


def test_ids_that_were_used_before_are_told_apart(
    run: RunDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sandbox that was set up anew counts from 1 again."""
    submitted(run)
    attempt(run, FAILED)
    other = RunDir(tmp_path / "20260102-000000-it-xyz789")
    with rundir.create_run(other.path, {"id": "xyz789", "name": "it"}):
        pass
    submitted(other)
    answer = SlurmAnswer({job_key("7", "it-xyz789"): SlurmJob("RUNNING")}, time.time())
    for module in (places, lost_submissions):
        monkeypatch.setattr(module, "of_run", lambda name, kept, is_obeyed: SITE)
    monkeypatch.setattr(slurm_query, "ask", lambda cluster, keys, fresh_s: answer)
    found = states.states_of([states.observe(run), states.observe(other)])
    assert (found[run.path].name, found[other.path].name) == ("failed", "running")


def test_a_silent_slurm_does_not_make_a_new_job_fail(
    run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cache knows other jobs, not this one."""
    submitted(run)
    assert told(run, monkeypatch, ("6", "RUNNING"), problem="no answer").name == "pending"
    attempt(run, BEGUN)
    assert told(run, monkeypatch, ("6", "RUNNING"), problem="no answer").name == "running"


def test_a_job_does_not_outlive_its_sandbox(
    run: RunDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))  # no profile of that name is there
    submitted(run)
    attempt(run, BEGUN)
    assert states.state_of(run).name == "failed"


def test_what_slurm_said_once_is_kept(
    run: RunDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slurm has forgotten the job, or the sandbox is gone."""
    submitted(run)
    attempt(run, STOPPED)
    assert told(run, monkeypatch, ("7", "TIMEOUT")).name == "timeout"
    assert told(run, monkeypatch).name == "timeout"
    monkeypatch.undo()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert states.state_of(run).name == "timeout"


def test_a_copy_of_a_run_has_a_state_of_its_own(
    run: RunDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import shutil

    submitted(run)
    attempt(run, BEGUN)
    shutil.copytree(run.path, tmp_path / "copy" / run.path.name)
    copy = RunDir(tmp_path / "copy" / run.path.name)
    told(run, monkeypatch, ("7", "RUNNING"))
    found = states.states_of([states.observe(run), states.observe(copy)])
    assert {state.name for state in found.values()} == {"running"} and len(found) == 2


# clocks that were wrong -----------------------------------------------------------------------------


def test_a_cancel_of_an_earlier_start_is_history_though_a_clock_was_ahead(
    run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pack whose runs were called cancelled while it waited was started once more."""
    records.append_json(run.control_file, {"what": "cancelled", "t": time.time() + 3600})
    submitted(run, t=time.time(), packed=True)
    assert told(run, monkeypatch, ("7", "PENDING")).name == "pending"
    records.append_json(run.control_file, {"what": "cancelled", "t": time.time() - 3600})
    assert told(run, monkeypatch, ("7", "PENDING")).name == "cancelled"


def test_a_start_on_this_machine_counts_though_the_clock_was_ahead(run: RunDir) -> None:
    """From its record to the claim of its attempt, a second `resume` saw the failure before."""
    ended = {**FAILED, "started": time.time() + 3600, "ended": time.time() + 3660}
    gone = {"host": processes.host(), "boot": "b", "pid": 7, "pid_start": 1}
    attempt(run, {**{key: ended[key] for key in ended if key != "job"}, **gone})
    gate = Gate(["sleep", "60"], dict(os.environ))
    start_recorded(run, gate, scheduler="local")
    assert states.state_of(run).name == "pending"
    gate.kill()
    assert states.state_of(run).name == "failed"


def test_a_requeued_job_is_asked_for_though_the_clock_of_its_node_is_behind(
    run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = job_key("7", "it-abc234")
    submitted(run)
    attempt(run, {**BEGUN, "started": time.time() - 600})
    assert told(run, monkeypatch, ("7", "NODE_FAIL")).name == "failed"
    attempt(run, {**BEGUN, "started": time.time() - 300})

    def answer(_: Cluster, keys: Any, fresh_s: float) -> SlurmAnswer:
        state = "NODE_FAIL" if fresh_s else "RUNNING"
        return SlurmAnswer({key: SlurmJob(state)}, time.time())

    monkeypatch.setattr(slurm_query, "ask", answer)
    assert states.state_of(run).name == "running"


# submissions whose answer was lost ------------------------------------------------------------------


def test_nobody_looks_for_the_jobs_of_somebody_else(
    run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name of a job in a foreign run may be that of the reader's own jobs."""
    lose_answer(run, after=0)
    said: list[str] = []
    monkeypatch.setattr(
        submit, "find_by_name", lambda cluster, names, *limits: {"it-abc234": ["7", "8"]}
    )
    monkeypatch.setattr(submit, "cancel_jobs", lambda cluster, name, jobs: said.extend(jobs))
    other = run.path.stat().st_uid + 1
    monkeypatch.setattr(os, "geteuid", lambda: other)
    state = told(run, monkeypatch, ("7", "PENDING"))
    assert (state.name, said, run.jobs()) == ("pending", [], [])
    assert "only its owner" in state.cause


def test_a_submission_that_never_came_through_is_settled_after_a_day(
    run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until then Slurm is asked at every look."""
    asked: list[str] = []

    def find(cluster: Cluster, names: Any, *limits: float) -> dict[str, list[str]]:
        asked.extend(names)
        return {}

    monkeypatch.setattr(submit, "find_by_name", find)
    lose_answer(run, after=0)
    for _ in range(2):
        assert told(run, monkeypatch).name == "failed"
    past = time.time() - 2 * 86_400
    os.utime(run.control_file, (past, past))
    for _ in range(2):
        state = told(run, monkeypatch)
        assert "it was never started" in state.cause
    assert asked == ["it-abc234"] * 3
    assert "Slurm knows no job of that name" in state.cause
