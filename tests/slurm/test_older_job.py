"""Jobs of an older version go on after an update, with their own job.sh and rank.py."""

import json
from pathlib import Path
from typing import Any

from older_runs import true_here, unpack

from .conftest import Sandbox

SUBMIT = 'cd "$0" && exec sbatch --time=10 job.sh'
"""With more time than the first attempt had: a busy machine might need a third one."""


def there(sandbox: Sandbox, root: Path, *kinds: str) -> dict[str, Path]:
    """Older runs of a cluster that is this sandbox."""
    here = {"@CLUSTER@": sandbox.name, "@SLURM_CONF@": sandbox.env["SLURM_CONF"]}
    return unpack({**true_here(root), **here}, *kinds).runs


def ended(sandbox: Sandbox, run: Path, attempt: int) -> Any:
    """What is said of the run when this attempt has ended."""
    begun = run / "attempts" / str(attempt) / "attempt.json"
    sandbox.wait_for(begun.exists, f"attempt {attempt} begins", 60)
    sandbox.call("timeout", "90", "rampup", "wait", str(run))
    return json.loads(sandbox.rampup("show", str(run), "--json").stdout)


def programs_of(run: Path) -> list[str]:
    return [(run / name).read_text() for name in ("job.sh", "rank.py")]


def test_an_older_job_that_slurm_starts_again_goes_on(sandbox: Sandbox, tmp_path: Path) -> None:
    """One was stopped at its time limit, one was requeued by hand.

    A recipe of a user's own is started by a module of ours, polyfit as a file of ours.
    """
    runs = there(sandbox, tmp_path, "again-slurm", "again-polyfit")
    before = {run: programs_of(run) for run in runs.values()}
    for run in runs.values():  # what Slurm does with a job that it has put back into its queue
        sandbox.run("bash", "-c", SUBMIT, str(run))
    for kind, steps in (("again-slurm", 90), ("again-polyfit", 20000)):
        run = runs[kind]
        found = ended(sandbox, run, attempt=2)
        assert (found["state"], found["attempts"]) == ("completed", 2), found["cause"]
        first, second = found["each_attempt"]
        assert (second["first_step"], second["last_step"]) == (first["last_step"], steps)
        assert 0 < first["last_step"] < steps
        assert programs_of(run) == before[run], "no newer ones were put in their place"


def test_an_older_run_that_slurm_has_forgotten_is_resumed(sandbox: Sandbox, tmp_path: Path) -> None:
    """It gets a job.sh of this version, and is held in the queue as it was before."""
    run = there(sandbox, tmp_path, "pending")["pending"]
    assert json.loads(sandbox.rampup("show", str(run), "--json").stdout)["state"] == "failed"
    sandbox.rampup("resume", str(run), "--json")
    submitted = json.loads((run / "control.jsonl").read_text().splitlines()[-1])
    sandbox.run("scontrol", "release", submitted["job"])
    found = ended(sandbox, run, attempt=1)
    assert (found["state"], found["attempts"]) == ("completed", 1)
    assert found["metrics"]["total"] == sum(range(21))
