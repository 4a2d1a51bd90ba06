"""What is said of runs that are tasks of arrays, or share a job with others; and of studies by
their names."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rampup.core.spec import Cluster
from rampup.errors import Refused, UsageError
from rampup.rundir import files as rundir
from rampup.rundir import find as runs
from rampup.rundir import records
from rampup.rundir.files import RunDir
from rampup.runs import places
from rampup.runs import state as states
from rampup.runs import submissions as lost_submissions
from rampup.schedulers.base import job_key
from rampup.schedulers.slurm import query as slurm_query
from rampup.schedulers.slurm import submit as slurm_submit
from rampup.schedulers.slurm.jobs import SlurmJob
from rampup.schedulers.slurm.query import SlurmAnswer, each_of
from rampup.study import members
from rampup.study.columns import check, headline, more_is_better, values_of
from rampup.study.grid import Point

SITE = Cluster(name="site", scheduler="slurm")
BEGUN: dict[str, Any] = {
    "launcher": "srun",
    "job": "7",
    "host": "node1",
    "started": 100.0,
    "world_size": 2,
}
FAILED = {**BEGUN, "outcome": "failed", "exit_code": 3, "ended": 160.0, "cause": ""}
STOPPED = {**BEGUN, "outcome": "stopped", "exit_code": 143, "ended": 160.0}
SAVED = {**BEGUN, "outcome": "timeout", "exit_code": 124, "ended": 160.0, "cause": ""}
SPENT = {**SAVED, "cause": "resources.requeues allows no more"}
COMPLETED = {**BEGUN, "outcome": "completed", "exit_code": 0, "ended": 160.0}


def make(root: Path, run_id: str = "abc234", study: str | None = "it", **more: Any) -> RunDir:
    identity = {"id": run_id, "name": "it", "created": 90.0, "study": study, **more}
    made = RunDir(root / f"20260101-000000-it-{run_id}")
    with rundir.create_run(made.path, identity):
        pass
    return made


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    made = make(tmp_path)
    made.config_file.write_text("{}")
    return made


def submitted(run: RunDir, **more: Any) -> None:
    said = {
        "what": "submitted",
        "t": 95.0,
        "scheduler": "slurm",
        "cluster": "site",
        "job": "7",
        "job_name": "it-pack1",
    }
    records.append_json(run.control_file, {**said, **more})


def told(run: RunDir, monkeypatch: pytest.MonkeyPatch, **jobs: str) -> states.State:
    """The state when Slurm says this of these jobs."""
    answer = SlurmAnswer(
        {job_key(job.strip("j"), "it-pack1"): SlurmJob(state) for job, state in jobs.items()},
        time.time(),
    )
    for module in (places, lost_submissions):
        monkeypatch.setattr(module, "of_run", lambda name, kept, is_obeyed: SITE)
    monkeypatch.setattr(slurm_query, "ask", lambda cluster, keys, fresh_s: answer)
    return states.state_of(run)


@pytest.mark.parametrize(
    ("facts", "slurm", "state"),
    [
        (None, "PENDING", "pending"),
        (None, "RUNNING", "pending"),  # its turn has not come
        (None, "COMPLETED", "failed"),
        (None, "CANCELLED", "cancelled"),
        (None, "TIMEOUT", "timeout"),
        (BEGUN, "RUNNING", "running"),
        (BEGUN, "PENDING", "pending"),  # the pack was requeued
        (BEGUN, "COMPLETED", "failed"),
        (FAILED, "RUNNING", "failed"),  # the job goes on with others
        (FAILED, "PENDING", "failed"),
        (STOPPED, "RUNNING", "pending"),
        (STOPPED, "CANCELLED", "cancelled"),
        (SAVED, "RUNNING", "pending"),  # it goes on when the pack is started again
        (SAVED, "PENDING", "pending"),
        (SAVED, "FAILED", "timeout"),
        (SPENT, "RUNNING", "timeout"),
        (COMPLETED, "RUNNING", "completed"),
    ],
)
def test_a_run_that_shares_its_job(
    run: RunDir,
    monkeypatch: pytest.MonkeyPatch,
    facts: dict[str, Any] | None,
    slurm: str,
    state: str,
) -> None:
    submitted(run, packed=True)
    if facts is not None:
        records.write_json(run.claim_attempt().facts_file, facts)
    assert told(run, monkeypatch, j7=slurm).name == state


@pytest.mark.parametrize(
    ("facts", "state"), [(None, "cancelled"), (STOPPED, "cancelled"), (BEGUN, "running")]
)
def test_a_cancelled_run_of_a_pack(
    run: RunDir, monkeypatch: pytest.MonkeyPatch, facts: dict[str, Any] | None, state: str
) -> None:
    submitted(run, packed=True)
    if facts is not None:
        records.write_json(run.claim_attempt().facts_file, facts)
    run.record("cancelled", by="rampup cancel")
    assert told(run, monkeypatch, j7="RUNNING").name == state
    submitted(run, packed=True, t=time.time() + 1)
    assert told(run, monkeypatch, j7="RUNNING").name == (
        "pending" if facts != BEGUN else "running"
    ), "started again"


def test_a_task_of_an_array_is_asked_for_by_the_name_of_the_array(
    run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    submitted(run, job="7_3")
    assert told(run, monkeypatch, j7_3="RUNNING", j7_4="COMPLETED").name == "running"


@pytest.mark.parametrize(
    ("job", "each"),
    [
        ("7", ["7"]),
        ("7_3", ["7_3"]),
        ("7_[3]", ["7_3"]),
        ("7_[0-2,5%4]", ["7_0", "7_1", "7_2", "7_5"]),
        ("7_[0-6:3,8]", ["7_0", "7_3", "7_6", "7_8"]),
    ],
)
def test_tasks_that_never_began_are_one_row_of_sacct(job: str, each: list[str]) -> None:
    assert each_of(job) == each


# submissions whose end nobody wrote down ----------------------------------------------------------


def test_slurm_is_asked_once_for_a_lost_submission(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = [make(tmp_path, f"aaa22{number}") for number in range(3)]
    for task, run in enumerate(lost):
        run.config_file.write_text("{}")
        run.record("submitting", cluster="site", job_name="it-array1", task=task)
    asked: list[str] = []

    def find_by_name(
        cluster: Cluster, names: Sequence[str], *limits: float
    ) -> dict[str, list[str]]:
        asked.extend(names)
        return {name: ["7"] for name in names}

    for module in (places, lost_submissions):
        monkeypatch.setattr(module, "of_run", lambda name, kept, is_obeyed: SITE)
    monkeypatch.setattr(slurm_submit, "find_by_name", find_by_name)
    lost_submissions.find_submissions({run: run.control() for run in lost})
    assert asked == ["it-array1"]
    assert [(run.recorded("submitted") or {})["job"] for run in lost] == ["7_0", "7_1", "7_2"]


def test_what_ended_without_a_word_of_its_submission_is_not_run_again(tmp_path: Path) -> None:
    done, never = make(tmp_path, "aaa222", point_id="a"), make(tmp_path, "bbb222", point_id="b")
    for run in (done, never):
        run.config_file.write_text("{}")
        # that sandbox was taken down
        run.record("submitting", cluster="gone", job_name="it-array1", task=0)
    records.write_json(done.claim_attempt().facts_file, COMPLETED)
    points = [Point({}, None, name) for name in ("a", "b")]  # type: ignore[arg-type]
    found = members.members_of(members.Study("it", tmp_path), points)
    assert [member.todo for member in found] == ["done", "again"]


# studies by name ----------------------------------------------------------------------------------


@pytest.fixture
def roots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("RAMPUP_RUNS", str(tmp_path / "here"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    for root in (tmp_path / "here", tmp_path / "there"):
        root.mkdir()
        runs.remember_root(root)
    return tmp_path / "here", tmp_path / "there"


def test_the_study_of_this_place_is_meant(roots: tuple[Path, Path]) -> None:
    here, there = roots
    make(there, "bbb222")
    assert members.find("it").root == there, "the only one"
    make(here, "aaa222")
    make(here, "ccc222", study=None)  # a run of that name that is none of it
    assert [run.id for run in members.find("it").runs()] == ["aaa222"]


def test_two_studies_of_other_places_must_be_told_apart(
    roots: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, root in enumerate(roots):
        make(root, f"aaa22{number}")
    monkeypatch.setenv("RAMPUP_RUNS", str(tmp_path / "nowhere"))
    with pytest.raises(UsageError, match="2 studies 'it'"):
        members.find("it")


def test_an_unknown_study_names_the_known_ones(roots: tuple[Path, Path]) -> None:
    make(roots[0])
    with pytest.raises(Refused) as refused:
        members.find("itt")
    assert refused.value.hint == "did you mean it? known: it"


# columns ------------------------------------------------------------------------------------------

CONFIG = {
    "train": {"lr": 0.1, "monitor": "val_error"},
    "resources": {"nodes": 2},
    "cluster": {"launcher": "srun"},
}
METRICS = {
    "t": 1.0,
    "step": 5,
    "lr": 0.05,
    "val_error": 0.3,
    "val_accuracy": 0.7,
    "samples_s": 10.0,
}


def test_a_column_is_a_setting_before_it_is_a_metric() -> None:
    row = values_of({"state": "failed"}, CONFIG, METRICS)
    wanted = (
        "lr",
        "metrics.lr",
        "train.lr",
        "nodes",
        "resources.nodes",
        "cluster.launcher",
        "samples_s",
        "state",
    )
    assert [row[name] for name in wanted] == [0.1, 0.05, 0.1, 2, 2, "srun", 10.0, "failed"]
    check(wanted, [row])
    with pytest.raises(Refused, match="val_acuracy") as refused:
        check(["val_acuracy"], [row])
    assert refused.value.hint.startswith("close: val_accuracy")


def test_the_metric_that_counts() -> None:
    assert headline([{}, METRICS], [None, "val_error"]) == "val_error"
    assert headline([METRICS], ["gone"]) == "val_accuracy"
    assert headline([{"t": 1.0, "loss": 2}], []) == "loss"
    assert headline([{}], []) is None


def test_only_of_metrics_it_is_known_what_is_better() -> None:
    better = [
        name
        for name in (
            "val_accuracy",
            "val_error",
            "lr",
            "took",
            "metrics.lr",
            "samples_s",
            "epoch_s",
        )
        if more_is_better(name, [CONFIG])
    ]
    assert better == ["val_accuracy", "metrics.lr", "samples_s"]
