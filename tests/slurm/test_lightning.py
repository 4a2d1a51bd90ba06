"""Modules that know nothing of rampup, on two nodes of a real Slurm: stopped by SIGUSR2 they go on
to the same end."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from multirank.lightning_cases import COMMON, FOREIGN, MODULES, Case

from rampup.rundir.files import RunDir

from .conftest import Sandbox
from .test_again import attempts, ended

RANKS = Path(__file__).with_name("lightning_ranks.py")
LONG = (
    "max_epochs=60",
    "log_every_n_steps=20",
    "samples=400",
    "patience=60",
    "enable_model_summary=false",
)


def expected_steps(case: Case) -> int:
    """Of three epochs on two ranks: each has half of the data, and `two` steps twice for every
    batch."""
    per_epoch = {"boring": 32, "manual": 32, "demo": 32, "two": 12, "own": 10, "stream": 10}
    return 3 * per_epoch[case.run.path.name]


@pytest.fixture(scope="module")
def cases(sandbox: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Case]:
    """All modules in one job step of two nodes, one after the other, so that lightning is imported
    once per node."""
    root = tmp_path_factory.mktemp("lightning")
    made = {
        name: Case(root / name, (*words, *COMMON), (2, 2), asked_after=9)
        for name, words in MODULES.items()
    }
    (root / "cases.json").write_text(
        json.dumps({name: case.write() for name, case in made.items()})
    )
    command = ("python", str(RANKS), str(root / "cases.json"))
    words = ("run", "--on", sandbox.name, "--nodes", "2", "--json", "--", *command)
    run = Path(json.loads(sandbox.rampup(*words).stdout)["dir"])
    state = ended(sandbox, run, 110)["state"]
    assert state == "completed", "".join(
        path.read_text() for path in root.glob("*/attempts/*/rank-*.log")
    )
    return made


@pytest.mark.parametrize("name", MODULES)
def test_a_module_on_two_nodes_is_stopped_and_goes_on(cases: dict[str, Case], name: str) -> None:
    case = cases[name]
    stopped = case.run.attempt(1).event("stopped")
    assert stopped and 0 < stopped["step"] < case.end["step"] == expected_steps(case)
    assert case.last.event("resumed")["step"] == stopped["step"]
    nodes = {path.name for path in case.last.path.glob("system-*.jsonl")}
    assert len(nodes) == 2, "a rank on each node"


def test_a_run_asked_by_slurm_is_requeued_and_completes(sandbox: Sandbox) -> None:
    shutil.copy(FOREIGN / "own_callbacks.py", sandbox.cwd)
    target = ("own_callbacks:OwnCallbacks", "data=own_callbacks:Points", "lr=1e-4", *LONG)
    done = sandbox.rampup(
        "run", *target, "--on", sandbox.name, "--nodes", "2", "--time", "10", "--json"
    )
    run = Path(json.loads(done.stdout)["dir"])
    sandbox.wait_for((run / "attempts" / "1" / "listens").exists, "it trains", 90)
    sandbox.run("scancel", "--signal=USR2", attempts(run)[0]["job"])
    assert ended(sandbox, run, 110)["state"] == "completed"
    found: list[dict[str, Any]] = attempts(run)
    assert [facts["outcome"] for facts in found] == ["again", "completed"]
    assert len({facts["job"] for facts in found}) == 1, (
        "by the job script, and Lightning did nothing itself"
    )
    resumed = RunDir(run).attempt(2).event("resumed")
    assert resumed and resumed["exact"] and resumed["step"] > 0
    assert (run / "code" / "own_callbacks.py").is_file()
    assert not list(run.glob("**/hpc_ckpt*")), sys.executable
