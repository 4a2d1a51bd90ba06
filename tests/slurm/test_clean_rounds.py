"""`clean` beside a job that Slurm puts back into its queue, at random moments."""

import time
from pathlib import Path
from typing import Any

import pytest
from clean_rounds import Rounds, run_once

from .conftest import Sandbox


@pytest.mark.slow
def test_clean_beside_a_requeue(sandbox: Sandbox, cli: Any) -> None:
    """50 rounds of several seconds, as Slurm needs them to start a job."""
    run = run_once(cli, Path(cli.cwd), "--on", sandbox.name)
    cli("wait", run.id, check=100)
    job = run.attempts()[0].facts["job"]

    def requeue() -> bool:
        sandbox.run("scontrol", "requeue", job)
        # Slurm makes a requeued job wait two minutes; that may be lifted after a second
        time.sleep(1.1)
        sandbox.run("scontrol", "update", f"jobid={job}", "starttime=now")
        return True

    Rounds(run, cli.env, requeue).play(50)
