"""Open MPI names the rank that failed first, on this machine in job.log and in a job of Slurm in
Slurm's log."""

from pathlib import Path
from typing import Any

import pytest

from rampup.rundir import failures as causes
from rampup.rundir import files as rundir
from rampup.rundir.records import write_json

LINE = "-" * 74
FAILED = f"""{LINE}
mpirun detected that one or more processes exited with non-zero status, thus causing
the job to be terminated. The first process to do so was:

  Process name: [[25739,1],2]
  Exit code:    3
{LINE}
"""
KILLED = f"""{LINE}
mpirun noticed that process rank 2 with PID 0 on node vm exited on signal 9 (Killed).
{LINE}
"""
OF_SRUN = "srun: error: node1: task 0: Exited with exit code 1\n"
"""mpirun starts its daemons with srun, and they end as badly as what they have started."""
HERE: dict[str, Any] = {"launcher": "spawn", "outcome": "failed", "exit_code": 3}
IN_A_JOB: dict[str, Any] = {**HERE, "launcher": "srun", "job": "7"}


@pytest.mark.parametrize("facts", [HERE, IN_A_JOB], ids=["here", "in a job"])
@pytest.mark.parametrize(
    ("words", "cause"),
    [
        (FAILED, "rank 2 exited with code 3"),
        (KILLED, "rank 2 was killed by SIGKILL (out of memory, or by hand)"),
    ],
)
def test_the_first_rank_that_failed(
    tmp_path: Path, facts: dict[str, Any], words: str, cause: str
) -> None:
    identity = {"id": "abc234", "name": "it", "created": 90.0}
    run = rundir.RunDir(tmp_path / "20260101-000000-it-abc234")
    with rundir.create_run(run.path, identity):
        pass
    attempt = run.claim_attempt()
    write_json(attempt.facts_file, facts)
    log = run.slurm_log("7") if "job" in facts else attempt.job_log
    log.write_text(f"rampup: attempt 1 of job 7 begins on node1\n{OF_SRUN}{words}")
    assert causes.explain_failure(attempt, None, 3) == (2, cause)
