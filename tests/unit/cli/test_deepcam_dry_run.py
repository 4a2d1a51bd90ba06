"""One command of rampup against the two job scripts that ARCHER2's documentation has for DeepCam.

The directives below are those of the documentation. Where ours differ, the reason stands here.
"""

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from rampup.cli.run import command
from rampup.datasets.deepcam.generate import make_set

PAGE = Path(__file__).parents[3] / "docs" / "deepcam.md"
DOCUMENTED = {
    "archer2-gpu": {
        "partition": "gpu",
        "qos": "gpu-exc",
        "nodes": "2",
        "gpus": "8",
        "time": "01:00:00",
        "exclusive": "",
    },
    "archer2": {
        "partition": "standard",
        "qos": "standard",
        "nodes": "32",
        "ntasks-per-node": "1",
        "cpus-per-task": "128",
        "time": "10:00:00",
        "exclusive": "",
    },
}
STARTED = {
    "archer2-gpu": {
        "--ntasks=8": "--ntasks=8",
        "--tasks-per-node=4": "--ntasks-per-node=4",  # the option's full name
        "--cpu-bind=verbose,map_cpu:0,8,16,24": "--cpu-bind=verbose,map_cpu:0,8,16,24",
        "--hint=nomultithread": "#SBATCH --hint=nomultithread",  # srun takes it from the job
        "OMP_NUM_THREADS=1": "--cpus=8",  # a rank's threads; those of the readers are among them
    },
    "archer2": {
        "--ntasks-per-node=1": "--ntasks-per-node=1",
        "--nodes=32": "--ntasks=32",
        "--hint=nomultithread": "--hint=nomultithread",
        "SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK}": "--cpus-per-task=128",  # at srun itself
        "OMP_NUM_THREADS=${SLURM_CPUS_PER_TASK}": "--cpus=128",
    },
}
"""The options of srun and the variables in the documentation, each with what ours has for it, and the
reason where that differs."""
OURS_ALONE = {
    "job-name": "the recipe's name and the run's id",
    "output": "the log goes into the run directory, and is not moved while the job writes it",
    "open-mode": "a requeued job continues its log",
    "ntasks-per-node": "the documentation says it at srun alone; the job says it here",
    "cpus-per-task": "a rank gets eight of the node's 32 cores for its readers, not one thread",
    "signal": "the ranks save before the time limit",
    "requeue": "a preempted job continues",
    "hint": "one thread on each core, for the job and not for one srun",
    "account": "the documentation leaves the budget to the user, and so do we",
}


def read_commands() -> dict[str, list[str]]:
    """Return the words of the commands in the guide, by cluster."""
    found = {}
    text = PAGE.read_text().replace("\\\n", " ")
    for line in text.splitlines():
        cluster = re.match(r"rampup run deepcam --on (archer2\S*)", line)
        if cluster:
            found[cluster[1]] = shlex.split(line)[2:]
    return found


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("deepcam") / "mini"
    make_set(folder, 1, 1, 16, 24, processes=1)
    return folder


def show(cluster: str, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return what `--dry-run` shows for the guide's command."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    words = [
        f"data={data}" if word.startswith("data=") else word for word in read_commands()[cluster]
    ]
    assert f"data={data}" in words, "the guide names the mini set"
    done = CliRunner().invoke(
        command, [*words, "--dry-run"], standalone_mode=False, catch_exceptions=False
    )
    assert done.return_value == 0, done.stderr
    return done.stdout


@pytest.fixture
def script(
    request: pytest.FixtureRequest, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> str:
    return show(request.param, data, tmp_path, monkeypatch)


def read_directives(script: str) -> dict[str, str]:
    return dict(re.findall(r"^#SBATCH --([\w-]+)(?:=(.*))?$", script, re.MULTILINE))


@pytest.mark.parametrize("script", DOCUMENTED, indirect=True)
def test_directives_are_those_of_the_documentation(
    script: str, request: pytest.FixtureRequest
) -> None:
    cluster = request.node.callspec.params["script"]
    found, documented = read_directives(script), DOCUMENTED[cluster]
    found["time"] = found["time"].replace("0-", "", 1)
    for name, value in documented.items():
        assert found.get(name) == value, name
    extra = set(found) - set(documented)
    assert extra <= set(OURS_ALONE), f"without a reason: {extra - set(OURS_ALONE)}"


@pytest.mark.parametrize("script", STARTED, indirect=True)
def test_srun_starts_the_same_ranks(script: str, request: pytest.FixtureRequest) -> None:
    cluster = request.node.callspec.params["script"]
    (srun,) = re.findall(r"^  srun (.*?) &$", script, re.MULTILINE | re.DOTALL)
    words = shlex.split(srun.replace("\\\n", " "))
    lines = [line.partition("  #")[0] for line in script.splitlines()]
    for documented, ours in STARTED[cluster].items():
        assert ours in words or ours in lines, documented
    assert "export HOME=${HOME/#'/home/'/'/work/'}" in lines, "compute nodes see no other one"


def test_every_reason_is_needed(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: set[str] = set()
    for cluster, documented in DOCUMENTED.items():
        found |= set(read_directives(show(cluster, data, tmp_path, monkeypatch))) - set(documented)
    assert found == set(OURS_ALONE)


@pytest.mark.parametrize("script", DOCUMENTED, indirect=True)
def test_the_batch_is_as_large_as_there(script: str, request: pytest.FixtureRequest) -> None:
    ranks = {"archer2-gpu": 8, "archer2": 32}[request.node.callspec.params["script"]]
    settings = dict(re.findall(r"^train\.(\w+)\s+(\S+)", script, re.MULTILINE))
    assert settings["batch_size"] == str(ranks), "one sample on each rank"
    assert settings["epochs"] == "64" and settings["schedule"] == "constant"
    assert settings["optimizer"] == "adam" and settings["lr"] == "0.001"
    assert settings["target"] == "0.82"
