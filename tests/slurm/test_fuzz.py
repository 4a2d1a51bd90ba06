"""Signals at random moments of the verbs, on a Slurm in trouble; `make drill` plays many more."""

from pathlib import Path
from typing import Any

from benchmarks.control_rounds import Rounds

from .conftest import Sandbox


def test_signals_at_any_moment(sandbox: Sandbox, cli: Any, mnist: Path, tmp_path: Path) -> None:
    env = {**cli.env, "SLURM_CONF": sandbox.env["SLURM_CONF"]}
    rounds = Rounds(tmp_path / "rounds", env, sandbox.name, mnist)
    try:
        rounds.play(20)
    finally:
        rounds.end()
    assert not rounds.violations, "\n\n".join(words for _, words in rounds.violations)
