"""Requested against used: what sacct really prints, our own samples, and when an option is
advised."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from rampup.cli import usage as words
from rampup.cli.usage import advice, usage_json, usage_lines
from rampup.config.clusters import load
from rampup.errors import SchedulerError
from rampup.rundir.files import RunDir
from rampup.rundir.records import append_json, write_json
from rampup.runs.usage import better_options, usage_of
from rampup.runtime.telemetry import sampler
from rampup.schedulers.base import Usage
from rampup.schedulers.slurm import usage as slurm_usage
from rampup.schedulers.slurm.usage import asked_mb, read_sacct

# Slurm 22.05.8, `sacct -n -P -o FIELDS`: two nodes with two ranks each, and 2 CPUs per rank
SACCT = """\
58|COMPLETED|00:02:53|01:00:00|48G|8|2||01:26.920|
58.batch|COMPLETED|00:02:53|||4|1|1|00:00.280|12696K
58.extern|COMPLETED|00:02:53|||8|2|2|00:00.001|0
58.0|COMPLETED|00:02:52|||8|2|4|01:26.639|2044723K
"""
LARGE = Usage(
    source="sacct",
    wall_s=240,
    time_limit_s=3600,
    cpus_per_rank=4,
    cpus_busy=0.9,
    mem_asked_mb=24 * 1024,
    mem_used_mb=3.9 * 1024,
)


# sacct --------------------------------------------------------------------------------------------


def test_sacct_is_read() -> None:
    found = read_sacct(SACCT, ranks=4)
    assert found is not None
    assert (found.source, found.wall_s, found.time_limit_s) == ("sacct", 173, 3600)
    assert found.cpus_per_rank == 2 and found.cpus_busy == pytest.approx(86.92 / 173 / 4)
    assert found.mem_asked_mb == 24 * 1024, "of one node"
    assert found.mem_used_mb == pytest.approx(2 * 2044723 / 1024), "two ranks on a node"


@pytest.mark.parametrize("text", [
    "",
    "Slurm accounting storage is disabled\n",
    SACCT.replace("58|COMPLETED", "58|RUNNING"),
    "58|PENDING|00:00:00|01:00:00|48G|8|2||00:00:00|\n",
])  # fmt: skip
def test_no_accounts_or_none_yet(text: str) -> None:
    assert read_sacct(text, ranks=4) is None


def test_what_was_not_measured_stays_open() -> None:
    bare = "7|TIMEOUT|1-00:00:05|UNLIMITED|0|4|1||00:00:00|\n7.0|CANCELLED|1-00:00:05|||4|1|4|00:00:00|\n"
    found = read_sacct(bare, ranks=4)
    assert found == Usage(source="sacct", wall_s=86_405, cpus_per_rank=1)


@pytest.mark.parametrize(("text", "megabytes"), [
    ("48G", 24_576), ("4Gn", 4096), ("1000Mc", 4000), ("0", None), ("0n", None), ("", None),
])  # fmt: skip
def test_memory_that_was_asked_for(text: str, megabytes: float | None) -> None:
    assert asked_mb(text, nodes=2, cpus=8) == megabytes


# advice -------------------------------------------------------------------------------------------


def test_advice_names_the_option() -> None:
    assert advice(LARGE) == [
        "asked 24 GB, used 3.9 GB: --mem 5G",
        "asked 1 h 00 min, took 4 min 00 s: --time 0:06:00",
        "4 CPUs per rank, 0.9 busy: --cpus-per-task 1",
    ]
    assert usage_lines(LARGE, "completed")[0] == (
        "used: 4 min 00 s of 1 h 00 min, 0.9 of 4 CPUs per rank, 3.9 GB of 24 GB of memory per node"
    )
    assert [line.partition(":")[0] for line in usage_lines(LARGE, "completed")] == [
        "used",
        "note",
        "note",
        "note",
    ]


def test_more_memory_than_was_asked_for_is_named() -> None:
    (note,) = advice(replace(LARGE, mem_asked_mb=753, mem_used_mb=796, wall_s=59))[:1]
    assert note.startswith("asked 753 MB, used 796 MB: a site that enforces the limit would have")
    assert note.endswith("--mem 1G")


@pytest.mark.parametrize(("changes", "option"), [
    ({"mem_used_mb": 13 * 1024}, "mem"),
    ({"mem_asked_mb": 1500, "mem_used_mb": 500}, "mem"),
    ({"mem_asked_mb": None}, "mem"),
    ({"mem_used_mb": None}, "mem"),
    ({"wall_s": 59}, "mem"),
    ({"wall_s": 59}, "cpus-per-task"),
    ({"cpus_busy": 2.1}, "cpus-per-task"),
    ({"cpus_busy": None}, "cpus-per-task"),
    ({"cpus_per_rank": 1, "cpus_busy": 0.1}, "cpus-per-task"),
    ({"time_limit_s": None}, "time"),
    ({"time_limit_s": 700}, "time"),
])  # fmt: skip
def test_no_advice_where_little_is_wasted(changes: dict[str, Any], option: str) -> None:
    assert option in better_options(LARGE)
    assert option not in better_options(replace(LARGE, **changes))


def test_small_memory_is_advised_in_megabytes() -> None:
    assert better_options(replace(LARGE, mem_used_mb=310))["mem"] == "400M"


def test_only_a_run_that_did_its_work_advises() -> None:
    assert usage_lines(LARGE, "timeout") == usage_lines(LARGE, "completed")[:1]
    assert usage_json(LARGE, "failed")["better"] == {}
    assert usage_json(LARGE, "completed")["better"] == {
        "mem": "5G",
        "time": "0:06:00",
        "cpus-per-task": "1",
    }
    assert usage_json(None, "completed") is None and usage_lines(None, "completed") == []


# a run --------------------------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    """It ran for 100 s on two nodes with two ranks each, and was sampled."""
    made = RunDir(tmp_path / "run")
    made.attempt(1).path.mkdir(parents=True)
    write_json(made.config_file, {"time_s": 3600, "resources": {"cpus_per_task": 2, "mem": "8G"}})
    facts = {"launcher": "srun", "job": "58", "world_size": 4, "started": 1000.0, "ended": 1100.0}
    write_json(made.attempt(1).facts_file, facts)
    made.record("submitted", scheduler="slurm", cluster="slurm", job="58")
    for node, rss, cpu in (("node1", 900, 90.0), ("node2", 700, 30.0)):
        file = made.attempt(1).system_file(node)
        append_json(file, {"t": 1, "rss_mb": rss, "cpu_s": 1.0})
        append_json(file, {"t": 2, "rss_mb": 10, "cpu_s": cpu})
    return made


def test_samples_tell_where_there_is_no_sacct(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = Usage(
        source="samples",
        wall_s=100,
        time_limit_s=3600,
        cpus_per_rank=2,
        cpus_busy=0.3,
        mem_asked_mb=8192,
        mem_used_mb=900,
    )
    assert usage_of(run, None) == expected

    def absent(*anything: Any) -> None:
        raise SchedulerError("sacct is not on PATH", "")

    monkeypatch.setattr(slurm_usage, "call", absent)
    assert usage_of(run, load("slurm")) == expected


def test_sacct_is_believed_first_and_completed_by_samples(
    run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    printed = [SACCT, "58|COMPLETED|00:01:40|01:00:00|16G|8|2||00:00:00|\n"]
    monkeypatch.setattr(
        slurm_usage,
        "call",
        lambda *anything: subprocess.CompletedProcess([], 0, printed.pop(0), ""),
    )
    assert usage_of(run, load("slurm")) == read_sacct(SACCT, ranks=4)
    mixed = usage_of(run, load("slurm"))
    assert mixed is not None
    assert (mixed.source, mixed.mem_asked_mb, mixed.mem_used_mb, mixed.cpus_busy) == (
        "sacct",
        8192,
        900,
        0.3,
    )


def test_only_runs_that_ended_on_a_cluster(run: RunDir) -> None:
    assert words.usage_when_ended(run, "running") is None
    write_json(run.attempt(1).facts_file, {"launcher": "spawn", "started": 1.0, "ended": 2.0})
    assert words.usage_when_ended(run, "completed") is None


# who samples --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("env", "sampled"), [
    ({}, True),
    ({"LOCAL_RANK": "1", "RANK": "1"}, False),
    ({"LOCAL_RANK": "0", "RANK": "2"}, True),
    ({"RAMPUP_SUPERVISED": "1"}, False),
])  # fmt: skip
def test_the_first_rank_of_a_node_samples(run: RunDir, env: dict[str, str], sampled: bool) -> None:
    mine = {
        "RAMPUP_RUN_DIR": str(run.path),
        "RAMPUP_ATTEMPT": "1",
        "RAMPUP_NODE": "node9",
        "WORLD_SIZE": "4",
    }
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RAMPUP_")}
    subprocess.run(
        [sys.executable, "-c", "import rampup; rampup.init()"],
        env={**kept, **mine, **env},
        check=True,
    )
    assert run.attempt(1).system_file("node9").exists() is sampled


def test_ranks_are_known_by_run_and_node(tmp_path: Path) -> None:
    def start(run_dir: Path, node: str) -> subprocess.Popen[bytes]:
        code = "print(1, flush=True); import time; time.sleep(60)"
        env = {**os.environ, "RAMPUP_RUN_DIR": str(run_dir), "RAMPUP_NODE": node}
        started = subprocess.Popen([sys.executable, "-c", code], env=env, stdout=subprocess.PIPE)
        assert started.stdout is not None and started.stdout.readline() == b"1\n"
        return started

    ranks = [start(tmp_path, "node1"), start(tmp_path, "node2"), start(tmp_path / "other", "node1")]
    try:
        assert sampler.find_ranks(tmp_path, "node1") == {os.getpid(), ranks[0].pid}
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate()
