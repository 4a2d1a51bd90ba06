"""One command of rampup against the job script that ARCHER2's documentation has for CosmoFlow.

The directives below are those of the documentation. Where ours differ, the reason stands here.
"""

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from rampup.cli.run import command
from rampup.datasets.cosmoflow.generate import make_set

pytest.importorskip("yaml")

PAGE = Path(__file__).parents[3] / "docs" / "cosmoflow.md"
DOCUMENTED = {
    "partition": "standard",
    "qos": "standard",
    "nodes": "32",
    "ntasks-per-node": "8",
    "cpus-per-task": "16",
    "time": "01:00:00",
    "exclusive": "",
}
SRUN = ("--distribution=block:block", "--cpu-freq=2250000")
OURS_ALONE = {
    "job-name": "the recipe's name and the run's id",
    "output": "the log goes into the run directory",
    "open-mode": "a requeued job continues its log",
    "signal": "the ranks save before the time limit: one hour does not hold 140 minutes",
    "requeue": "what is left is done in the next job",
    "hint": "one thread on each core, for the job and not for one srun",
    "account": "the documentation leaves the budget to the user, and so do we",
}
CONFIG = """
data: {data_dir: elsewhere, n_train: 32, n_valid: 32, batch_size: 4, n_epochs: 128, prefetch: 4}
optimizer: {name: SGD, momentum: 0.9}
lr_schedule:
  base_lr: 0.001
  scaling: linear
  base_batch_size: 64
  n_warmup_epochs: 4
  decay_schedule: {32: 0.25, 64: 0.125}
train: {loss: mse}
"""


def read_command() -> list[str]:
    """Return the words of the guide's command, without `rampup run`."""
    text = PAGE.read_text().replace("\\\n", " ")
    (line,) = re.findall(r"^rampup run (cosmoflow --on archer2 .*)$", text, re.MULTILINE)
    return shlex.split(line)


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What `--dry-run` shows for the guide's command."""
    folder = tmp_path_factory.mktemp("cosmoflow")
    make_set(folder / "mini", 1, 1, 8, 8, 64.0, processes=1)
    (folder / "cosmo.yaml").write_text(CONFIG)
    (folder / "venv/bin").mkdir(parents=True)
    words = [
        f"data_dir={folder}/mini" if it.startswith("data_dir=") else it for it in read_command()
    ]
    words[words.index("VENV")] = str(folder / "venv")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(folder / "bin"))
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        patch.chdir(folder)
        done = CliRunner().invoke(
            command, [*words, "--dry-run"], standalone_mode=False, catch_exceptions=False
        )
    assert done.return_value == 0, done.stderr
    return done.stdout


def test_directives_are_those_of_the_documentation(script: str) -> None:
    found = dict(re.findall(r"^#SBATCH --([\w-]+)(?:=(.*))?$", script, re.MULTILINE))
    found["time"] = found["time"].replace("0-", "", 1)
    for name, value in DOCUMENTED.items():
        assert found.get(name) == value, name
    extra = set(found) - set(DOCUMENTED)
    assert extra == set(OURS_ALONE), f"without a reason: {extra - set(OURS_ALONE)}"


def test_srun_starts_the_same_ranks(script: str) -> None:
    srun = re.search(r"^  srun (.*?)\"\$python\"", script, re.MULTILINE | re.DOTALL)
    assert srun is not None
    words = shlex.split(srun[1].replace("\\\n", " "))
    for option in (*SRUN, "--ntasks=256", "--ntasks-per-node=8", "--cpus-per-task=16"):
        assert option in words, option


def test_variables_are_those_of_the_documentation(script: str) -> None:
    for text in ("UCX_MEMTYPE_CACHE=n", "TF_ENABLE_ONEDNN_OPTS=1"):
        assert text in script.replace("'", "").replace('"', ""), text


def test_settings_come_from_the_command_and_the_file(script: str) -> None:
    rows = dict(re.findall(r"^train\.(\w+)\s+(.*?)\s*$", script, re.MULTILINE))
    for name, value, origin in (
        ("epochs", "2048", "command line"),
        ("n_train", "1024", "command line"),
        ("n_valid", "1024", "command line"),
        ("batch_size", "1024", "cosmo.yaml: data.batch_size 4 x 256 ranks"),
        ("optimizer", "sgd", "cosmo.yaml: optimizer.name"),
        ("lr_scaling", "linear", "cosmo.yaml: lr_schedule.scaling"),
    ):
        assert rows[name].split(None, 1) == [value, origin]
