"""Submitting: a clean environment, one job and only one, its id as sbatch tells it. Stand-ins for
Slurm itself."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from rampup.core.spec import Cluster
from rampup.errors import Refused, SchedulerError
from rampup.rundir import claims, records
from rampup.rundir import files as rundir
from rampup.rundir.files import RunDir
from rampup.schedulers.slurm import submit as slurm
from rampup.schedulers.slurm.commands import Done, call, clean_environment

CLUSTER = Cluster(name="site", scheduler="slurm")
Programs = Callable[..., Path]


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    made = RunDir(tmp_path / "runs" / "20260101-000000-it-abc234")
    with rundir.create_run(made.path, {"id": "abc234"}):
        pass
    return made


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Programs:
    """Write programs into a directory at the head of PATH; each call is noted in the file that is
    returned."""
    folder, calls = tmp_path / "bin", tmp_path / "calls"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setattr("time.sleep", lambda seconds: None)

    def write(**texts: str) -> Path:
        for name, text in texts.items():
            (folder / name).write_text(f'#!/bin/sh\necho "{name} $*" >> {calls}\n{text}\n')
            (folder / name).chmod(0o755)
        return calls

    return write


def test_the_environment_of_a_submission_is_clean(monkeypatch: pytest.MonkeyPatch) -> None:
    leftovers = {
        "SLURM_JOB_ID": "1",
        "SLURM_CPUS_PER_TASK": "2",
        "SBATCH_PARTITION": "x",
        "SRUN_CPUS_PER_TASK": "9",
    }
    ranks = {
        "RANK": "3",
        "WORLD_SIZE": "4",
        "LOCAL_RANK": "1",
        "MASTER_ADDR": "n",
        "MASTER_PORT": "1",
        "PMI_RANK": "0",
    }
    for name, value in {
        **leftovers,
        **ranks,
        "SLURM_CONF": "/etc/other.conf",
        "MY_OWN": "kept",
    }.items():
        monkeypatch.setenv(name, value)
    env = clean_environment(CLUSTER)
    assert not (set(leftovers) | set(ranks)) & set(env)
    assert (env["SLURM_CONF"], env["MY_OWN"]) == ("/etc/other.conf", "kept")
    named = Cluster(name="site", slurm_conf="/sandbox/slurm.conf")
    assert clean_environment(named)["SLURM_CONF"] == "/sandbox/slurm.conf"


def test_one_of_several_clusters_is_asked_and_its_jobs_do_not_hear_of_it(
    programs: Programs,
) -> None:
    told = 'echo "$0 $* ${SLURM_CLUSTERS:-none}"'
    programs(squeue=told, sacct=told, sbatch=told)
    snowy = Cluster(name="site", slurm_cluster="snowy")
    said = [
        call(snowy, [name, "-x"], 5.0).stdout.rpartition("/")[2]
        for name in ("squeue", "sacct", "sbatch")
    ]
    assert said == ["squeue -x snowy\n", "sacct --clusters=snowy -x snowy\n", "sbatch -x none\n"]
    assert call(CLUSTER, ["sacct", "-x"], 5.0).stdout.endswith("sacct -x none\n")


def test_the_cluster_behind_the_id_is_cut_off(run: RunDir, programs: Programs) -> None:
    calls = programs(sbatch="echo '4711;mycluster'")
    assert slurm.submit(run, CLUSTER, "it-abc234") == "4711"
    assert (run.recorded("submitted") or {})["job"] == "4711"
    assert calls.read_text() == f"sbatch --parsable {run.job_script}\n"


def test_a_refusal_is_told_and_not_tried_again(run: RunDir, programs: Programs) -> None:
    calls = programs(sbatch="echo 'sbatch: error: invalid partition specified: nix' >&2; exit 1")
    with pytest.raises(SchedulerError, match="invalid partition specified: nix"):
        slurm.submit(run, CLUSTER, "it-abc234")
    assert len(calls.read_text().splitlines()) == 1
    assert run.recorded("submitted") is None


def test_a_lost_answer_is_looked_up_by_name(run: RunDir, programs: Programs) -> None:
    calls = programs(
        sbatch="echo 'sbatch: error: Socket timed out' >&2; exit 1", squeue="echo '4712|it-abc234'"
    )
    assert slurm.submit(run, CLUSTER, "it-abc234") == "4712"
    assert [line.split()[0] for line in calls.read_text().splitlines()] == ["sbatch", "squeue"]
    assert "--name=it-abc234" in calls.read_text()


def test_the_job_of_an_attempt_before_is_not_taken_for_the_lost_one(
    run: RunDir, programs: Programs
) -> None:
    """A resumed run has the same name as its ended job, which Slurm still knows."""
    run.record("submitted", scheduler="slurm", cluster="site", job="4700")
    programs(
        sbatch="echo 'sbatch: error: Socket timed out' >&2; exit 1",
        squeue="printf '4700|it-abc234\\n4712|it-abc234\\n'",
    )
    assert slurm.submit(run, CLUSTER, "it-abc234") == "4712"


@pytest.mark.parametrize(
    ("printed", "job"),
    [
        ("", None),
        (" \n\n", None),
        ("bye\n", None),
        ("Submitted batch job 99999999\n", None),
        ("9" * 3_000_000, None),
        ("4711\n4712\n", None),
        ("4711;mycluster\nbye\n", "4711"),
        ("notice: maintenance on Monday\n4711\n", "4711"),
        ("4711\n4711\n", "4711"),
    ],
)
def test_only_one_line_that_is_an_id_is_one(printed: str, job: str | None) -> None:
    """What it said last was once taken for the id, whatever it was; nothing was a traceback."""
    answer = slurm.read_answer(Done(["sbatch"], 0, printed, ""))
    assert (answer.job or None, answer.is_refusal) == (job, False)
    assert len(answer.said) < 300


def test_a_controller_that_comes_back_gets_one_job(
    run: RunDir, programs: Programs, tmp_path: Path
) -> None:
    gone = f"[ -e {tmp_path}/once ] && echo 4713 && exit 0; touch {tmp_path}/once; echo 'Unable to contact' >&2; exit 1"
    calls = programs(sbatch=gone, squeue="exit 0", sacct="exit 0")
    assert slurm.submit(run, CLUSTER, "it-abc234") == "4713"
    assert [line.split()[0] for line in calls.read_text().splitlines()] == [
        "sbatch",
        "squeue",
        "sacct",
        "sbatch",
        "squeue",
        "sacct",
    ]


def test_a_try_that_came_through_late_is_cancelled(
    run: RunDir, programs: Programs, tmp_path: Path
) -> None:
    """The first squeue does not see the job yet; after the second sbatch there are two."""
    late = f"[ -e {tmp_path}/once ] && echo 4713 && exit 0; touch {tmp_path}/once; echo 'Socket timed out' >&2; exit 1"
    seen = f"[ -e {tmp_path}/looked ] && printf '4712|it-abc234\\n4713|it-abc234\\n'; touch {tmp_path}/looked; exit 0"
    calls = programs(sbatch=late, squeue=seen, sacct="exit 0", scancel="exit 0")
    assert slurm.submit(run, CLUSTER, "it-abc234") == "4713"
    assert calls.read_text().splitlines()[-1] == "scancel 4712"


@pytest.mark.parametrize("is_seen", [True, False])
def test_a_refusal_of_a_second_try_does_not_say_that_there_is_no_job(
    run: RunDir, programs: Programs, tmp_path: Path, is_seen: bool
) -> None:
    """A site may allow one job, which the first try has become: slower than squeue shows it."""
    first = f"[ -e {tmp_path}/once ] || {{ touch {tmp_path}/once; echo 'Socket timed out' >&2; exit 1; }}"
    refusal = "echo 'sbatch: error: QOSMaxSubmitJobPerUserLimit' >&2; exit 1"
    late = f"[ -e {tmp_path}/looked ] && echo '4712|it-abc234'; touch {tmp_path}/looked; exit 0"
    programs(sbatch=f"{first}; {refusal}", squeue=late if is_seen else "exit 0", sacct="exit 0")
    if is_seen:
        assert slurm.submit(run, CLUSTER, "it-abc234") == "4712"
        return
    with pytest.raises(SchedulerError, match="QOSMaxSubmitJobPerUserLimit"):
        slurm.submit(run, CLUSTER, "it-abc234")
    assert claims.find_open(run.control()) is not None, "the job may still come"


@pytest.mark.parametrize("words", ["Message receive failure", "Unexpected message received"])
def test_a_connection_that_broke_is_not_a_refusal(
    run: RunDir, programs: Programs, words: str
) -> None:
    programs(
        sbatch=f"echo 'sbatch: error: Batch job submission failed: {words}' >&2; exit 1",
        squeue="echo '4712|it-abc234'",
    )
    assert slurm.submit(run, CLUSTER, "it-abc234") == "4712"


def test_who_was_away_and_has_lost_the_start_submits_nothing(
    run: RunDir, programs: Programs
) -> None:
    """Another host takes a start over that seems to be abandoned; the first process comes back."""
    calls = programs(sbatch="echo 4711")
    claims.claim(run, 1)
    claims.claim(run, 2)
    other = {**records.read_json(claims.claim_file(run, 2)), "host": "elsewhere"}
    records.write_json(claims.claim_file(run, 2), other)
    with pytest.raises(Refused, match="is being started by another process"):
        slurm.submit(run, CLUSTER, "it-abc234")
    assert not calls.exists() and run.control() == []


def test_an_sbatch_that_hangs_is_looked_up_too(
    run: RunDir, programs: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm, "SBATCH_S", 0.5)
    programs(sbatch="exec sleep 5", squeue="echo '4714|it-abc234'")
    assert slurm.submit(run, CLUSTER, "it-abc234") == "4714"


def test_nobody_knows_whether_the_job_exists(run: RunDir, programs: Programs) -> None:
    programs(
        sbatch="echo 'Socket timed out' >&2; exit 1",
        squeue="echo 'Unable to contact slurm' >&2; exit 1",
    )
    with pytest.raises(SchedulerError, match="it is unknown whether the job exists"):
        slurm.submit(run, CLUSTER, "it-abc234")


def test_cancel_takes_a_job_that_is_gone_for_cancelled(programs: Programs) -> None:
    programs(
        scancel="echo 'scancel: error: Kill job error on job id 1: Invalid job id specified' >&2; exit 1"
    )
    slurm.cancel(CLUSTER, "1")
    programs(scancel="echo 'Unable to contact slurm controller' >&2; exit 1")
    with pytest.raises(SchedulerError, match="Unable to contact"):
        slurm.cancel(CLUSTER, "1")


def test_no_slurm_and_a_silent_one(programs: Programs) -> None:
    with pytest.raises(SchedulerError, match="there is no Slurm here"):
        call(CLUSTER, ["no-such-program"], 1.0)
    programs(squeue="exec sleep 5")
    with pytest.raises(SchedulerError, match="gave no answer"):
        call(CLUSTER, ["squeue"], 0.1)


def test_long_lists_are_asked_in_portions(programs: Programs) -> None:
    """A command line has an end: with all names in one, `squeue` could not be started."""
    names = [f"{'x' * 40}-{number:06d}" for number in range(3000)]
    calls = programs(squeue='echo "7|$0"', sacct="exit 0", scancel="exit 0")
    assert set(slurm.find_by_name(CLUSTER, names)) == set(names)
    asked = calls.read_text().splitlines()
    assert [line.split()[0] for line in asked] == ["squeue"] * 15 + ["sacct"] * 15
    assert all(sum(name in line for line in asked) == 2 for name in names[::500])
    calls.unlink()
    slurm.cancel_jobs(CLUSTER, "it-abc234", [str(number) for number in range(2500)])
    portions = [line.split()[2:] for line in calls.read_text().splitlines()]
    assert [len(jobs) for jobs in portions] == [1000, 1000, 500]
