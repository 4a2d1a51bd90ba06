"""Asking Slurm: what is read from squeue and sacct, and what is never asked twice. Stand-ins for
both."""

import os
from pathlib import Path

import pytest

from rampup.core.spec import Cluster
from rampup.schedulers.base import job_key
from rampup.schedulers.slurm.jobs import SlurmJob
from rampup.schedulers.slurm.query import ask

CLUSTER = Cluster(name="site", scheduler="slurm")


class Slurm:
    """squeue and sacct that say what they are told, and count."""

    def __init__(self, folder: Path) -> None:
        self.bin, self.calls = folder / "bin", folder / "calls"
        self.bin.mkdir()
        self.says("squeue", "")
        self.says("sacct", "")

    def says(self, name: str, text: str, code: int = 0) -> None:
        (self.bin / f"{name}.txt").write_text(text)
        (self.bin / name).write_text(
            f'#!/bin/sh\necho {name} >> {self.calls}\ncat "$0.txt"\nexit {code}\n'
        )
        (self.bin / name).chmod(0o755)

    def asked(self) -> list[str]:
        names = self.calls.read_text().split() if self.calls.exists() else []
        self.calls.unlink(missing_ok=True)
        return names


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Slurm:
    made = Slurm(tmp_path)
    monkeypatch.setenv("PATH", f"{made.bin}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return made


def test_one_question_for_all_and_none_for_what_has_ended(site: Slurm) -> None:
    site.says(
        "squeue",
        "7|RUNNING|None|2026-01-01T00:00:00|node[1-2]|it-a\n8|PENDING|Priority|N/A||it|b\n",
    )
    site.says("sacct", "6|CANCELLED by 1000|None|node1|it-c\n")
    keys = [job_key("7", "it-a"), job_key("8", "it|b"), job_key("6", "it-c")]
    answer = ask(CLUSTER, keys, 0.0)
    assert [answer.jobs[key].state for key in keys] == ["RUNNING", "PENDING", "CANCELLED"]
    assert answer.jobs[keys[0]] == SlurmJob("RUNNING", "None", "2026-01-01T00:00:00", "node[1-2]")
    assert site.asked() == ["squeue", "sacct"]
    # fresh enough
    assert ask(CLUSTER, keys, 60.0).jobs[keys[0]].state == "RUNNING" and site.asked() == []
    assert ask(CLUSTER, keys[2:], 0.1).jobs[keys[2]].ended and site.asked() == []  # it has ended


def test_an_ended_job_may_be_requeued(site: Slurm) -> None:
    key = job_key("7", "it-a")
    site.says("squeue", "7|FAILED|None|N/A|node1|it-a\n")
    assert ask(CLUSTER, [key], 0.0).jobs[key].ended
    site.says("squeue", "7|PENDING|None|N/A||it-a\n")
    assert ask(CLUSTER, [key], 60.0).jobs[key].ended  # a reader of thousands does not ask again
    assert ask(CLUSTER, [key], 0.0).jobs[key].state == "PENDING"


def test_accounts_of_thousands_of_jobs_are_asked_in_portions(site: Slurm) -> None:
    """An `id` of three million digits, which a wrong sbatch once gave, must not spoil every list."""
    asked = site.bin / "asked"
    (site.bin / "sacct").write_text(f'#!/bin/sh\necho "$5" >> {asked}\n')
    keys = [job_key(str(100_000 + number), "it-a") for number in range(2500)]
    answer = ask(CLUSTER, [*keys, job_key("9" * 3_000_000, "it-b")], 0.0)
    assert answer.problem == ""
    portions = [line.split(",") for line in asked.read_text().splitlines()]
    assert [len(ids) for ids in portions] == [1000, 1000, 500]
    assert {job_key(job, "it-a") for ids in portions for job in ids} == set(keys)


def test_an_id_that_is_used_again_is_another_job(site: Slurm) -> None:
    """After `sandbox down` and `up` the numbers begin anew, and the cache still knows the old
    ones."""
    site.says("squeue", "1|COMPLETED|None|N/A|node1|it-old\n")
    assert ask(CLUSTER, [job_key("1", "it-old")], 0.0).jobs[job_key("1", "it-old")].ended
    site.says("squeue", "1|RUNNING|None|N/A|node1|it-new\n")
    answer = ask(CLUSTER, [job_key("1", "it-old"), job_key("1", "it-new")], 0.0)
    assert answer.jobs[job_key("1", "it-new")].state == "RUNNING"
    assert answer.jobs[job_key("1", "it-old")].state == "COMPLETED"


def test_a_site_without_accounts(site: Slurm) -> None:
    (site.bin / "sacct").write_text(
        "#!/bin/sh\necho 'Slurm accounting storage is disabled' >&2\nexit 1\n"
    )
    answer = ask(CLUSTER, [job_key("5", "it-a")], 0.0)
    assert (answer.jobs, answer.problem) == ({}, "")


def test_a_controller_that_is_down_leaves_the_last_known_state(site: Slurm) -> None:
    key = job_key("7", "it-a")
    site.says("squeue", "7|RUNNING|None|N/A|node1|it-a\n")
    ask(CLUSTER, [key], 0.0)
    site.says("squeue", "", code=1)
    answer = ask(CLUSTER, [key], 0.0)
    assert answer.jobs[key].state == "RUNNING" and answer.problem and answer.age_s < 60
