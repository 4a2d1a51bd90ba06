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
SRUN = {
    "archer2-gpu": {
        "--ntasks=8": "",
        "--tasks-per-node=4": "--ntasks-per-node=4 is the option's full name",
        "--cpu-bind=verbose,map_cpu:0,8,16,24": "",
        "--hint=nomultithread": "a directive of the job, which srun takes over",
    },
    "archer2": {"--hint=nomultithread": "a directive of the job, which srun takes over"},
}
"""The options of srun in the documentation, each with the reason why ours has it elsewhere."""
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
NOT_OURS: dict[str, str] = {}


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


@pytest.fixture
def script(
    request: pytest.FixtureRequest, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> str:
    """What `--dry-run` shows for the guide's command."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    words = [
        f"data={data}" if word.startswith("data=") else word
        for word in read_commands()[request.param]
    ]
    assert f"data={data}" in words, "the guide names the mini set"
    done = CliRunner().invoke(
        command, [*words, "--dry-run"], standalone_mode=False, catch_exceptions=False
    )
    assert done.return_value == 0, done.stderr
    return done.stdout


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


@pytest.mark.parametrize("script", SRUN, indirect=True)
def test_srun_starts_the_same_ranks(script: str, request: pytest.FixtureRequest) -> None:
    cluster = request.node.callspec.params["script"]
    srun = re.search(r"^  srun (.*?)\"\$python\"", script, re.MULTILINE | re.DOTALL)
    assert srun is not None
    for option, reason in SRUN[cluster].items():
        is_there = option in shlex.split(srun[1].replace("\\\n", " "))
        assert is_there or reason, option
    if cluster == "archer2":
        assert "--ntasks=32" in srun[1] and "--cpus-per-task=128" in srun[1]
    assert "export HOME=${HOME/#'/home/'/'/work/'}" in script, "as the documentation sets it"


@pytest.mark.parametrize("script", DOCUMENTED, indirect=True)
def test_the_batch_is_as_large_as_there(script: str, request: pytest.FixtureRequest) -> None:
    ranks = {"archer2-gpu": 8, "archer2": 32}[request.node.callspec.params["script"]]
    settings = dict(re.findall(r"^train\.(\w+)\s+(\S+)", script, re.MULTILINE))
    assert settings["batch_size"] == str(ranks), "one sample on each rank"
    assert settings["epochs"] == "64" and settings["schedule"] == "constant"
    assert settings["optimizer"] == "adam" and settings["lr"] == "0.001"
    assert settings["target"] == "0.82"
