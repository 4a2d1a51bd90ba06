"""Twelve functions that are hard to send, on two ranks of this machine."""

import os
from pathlib import Path
from typing import Any

import pytest
from hostile.cases import CASES, check_case, launch_case


@pytest.mark.parametrize("case", CASES)
def test_what_comes_of_a_hostile_function(case: str, cli: Any, tmp_path: Path) -> None:
    outcome = launch_case(case, cli.cwd, {**os.environ, **cli.env}, np=2)
    check_case(case, outcome)
    if case == "print flood":
        assert outcome["printed"] < 5_000_000, "a flood does not fill the caller's output"
    if case == "generator":
        assert not list(tmp_path.rglob("run.json")), "nothing was started"
