"""Real Horovod on a real Slurm, two nodes, over mpirun and over srun --mpi=pmix."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from rampup import contact
from rampup.rundir.files import RunDir

SCRIPT = Path(__file__).parents[1] / "foreign" / "horovod_ten_steps.py"
TOLD = re.compile(r"^rank \d of 2 on .* weights (\d+)$", re.MULTILINE)
BY_MPI = ("mpirun", "pmix")


def start(cli: Any, sandbox: Any, env: Path, launcher: str, *words: str) -> str:
    size = ("--nodes", "2", "--cpus-per-task", "1")
    found = cli(
        "run", "--on", sandbox.name, "--env", str(env), "--launcher", launcher, *size, *words
    ).stdout
    return str(found.strip())


@pytest.mark.parametrize("launcher", BY_MPI)
def test_a_script_of_ten_steps_runs_unchanged(
    cli: Any, sandbox: Any, horovod_env: Path, launcher: str
) -> None:
    run = start(cli, sandbox, horovod_env, launcher, "--", "python", str(SCRIPT))
    ended = cli.json("wait", run)
    assert ended["state"] == "completed"
    seen = RunDir(ended["dir"]).attempt(1)
    records = contact.read_records(lambda rank: seen.contact_file(rank).read_text(), 2)
    assert contact.judge(records, 2) == contact.MET and ended["apart"] == 0
    weights = [TOLD.search(cli("logs", run, "--rank", rank).stdout) for rank in ("0", "1")]
    assert all(weights) and weights[0][1] == weights[1][1]


def test_the_engine_does_the_same_steps_over_both(
    cli: Any, sandbox: Any, horovod_env: Path
) -> None:
    words = ("questions", "rows=2000", "epochs=2", "strategy=horovod")
    runs = [start(cli, sandbox, horovod_env, launcher, *words) for launcher in BY_MPI]
    ends = [cli.json("wait", run) for run in runs]
    assert [end["state"] for end in ends] == ["completed", "completed"]
    one, other = (json.loads(cli("show", run, "--history", "--json").stdout) for run in runs)
    timed = ("t", "samples_s", "epoch_s")
    assert [{name: row[name] for name in row if name not in timed} for row in one] == [
        {name: row[name] for name in row if name not in timed} for row in other
    ]
    table = json.loads(cli("list", "--columns", "nodes,samples_s,epoch_s", "--json").stdout)
    found = [row["columns"] for row in table if row["id"] in runs]
    assert [row["nodes"] for row in found] == [2, 2]
    assert all(row["samples_s"] > 0 and row["epoch_s"] > 0 for row in found)


def test_a_rank_that_dies_ends_the_job_with_its_traceback(
    cli: Any, sandbox: Any, horovod_env: Path
) -> None:
    run = start(cli, sandbox, horovod_env, "pmix", "--", "python", str(SCRIPT), "--dies")
    cli("wait", run, check=100)
    attempt = RunDir(cli.json("show", run)["dir"]).attempt(1)
    assert attempt.facts["ended"] - attempt.rank_log(1).stat().st_mtime < 60, "since its last word"
    assert "ValueError: as planned" in cli("logs", run, "--rank", "1").stdout
    assert "ValueError: as planned" in cli("why", run).stdout
