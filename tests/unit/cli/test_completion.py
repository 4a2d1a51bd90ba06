"""Tab completion: verbs, recipes, settings, runs, files."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


def complete(line: str, folder: Path, shell: str) -> list[str]:
    """The lines that a shell gets for the last word of a line."""
    words = line.split(" ")
    env = {
        **os.environ,
        "_RAMPUP_COMPLETE": f"{shell}_complete",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
        "RAMPUP_RUNS": str(folder),
        "XDG_STATE_HOME": str(folder),
    }
    argv = [
        sys.executable,
        "-c",
        "import sys; sys.argv = ['rampup']; from rampup.__main__ import main; main()",
    ]
    return subprocess.run(argv, env=env, capture_output=True, text=True).stdout.splitlines()


def completed(line: str, folder: Path) -> list[str]:
    """What bash would offer."""
    return [line.partition(",")[2] or line for line in complete(line, folder, "bash")]


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("rampup re", "recipe"),
        ("rampup run mni", "mnist"),
        ("rampup run mnist epo", "epochs="),
        ("rampup run mnist --ta", "--tasks-per-node"),
        ("rampup recipe show po", "polyfit"),
        ("rampup show ab", "abcdef"),
        ("rampup kill ab", "abcdef"),
        ("rampup help comp", "completion"),
        ("rampup list te", "test"),
        ("rampup run mnist --on lo", "local"),
        ("rampup resume abcdef --on lo", "local"),
        ("rampup doctor --on lo", "local"),
        ("rampup run mnist --launcher to", "torchrun"),
        ("rampup list --columns at", "attempts"),
        ("rampup list --columns id,at", "id,attempts"),
        ("rampup list --state can", "cancelled"),
        ("rampup export --to ten", "tensorboard"),
    ],
)
def test_what_is_offered(tmp_path: Path, line: str, offered: str) -> None:
    (tmp_path / "20260101-000000-test-abcdef").mkdir()
    assert offered in completed(line, tmp_path)


def test_an_id_is_offered_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "20260101-000000-test-abcdef").mkdir()
    assert complete("rampup show ab", tmp_path, "zsh") == ["plain", "abcdef", "test"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_for_a_shell(shell: str) -> None:
    argv = [sys.executable, "-m", "rampup", "completion", shell]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert "_RAMPUP_COMPLETE" in done.stdout
