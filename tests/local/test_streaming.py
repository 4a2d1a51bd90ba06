"""Whole runs on data that is read while the steps compute: memory, faults, a slow reader."""

import json
from pathlib import Path

import numpy as np
import pytest
from conftest import Cli
from pages import ROOT

STREAMED = str(ROOT / "benchmarks" / "streamed")
ROW_MB = 4 * 4096 / 1e6
READ_AHEAD_MB = 16
TIMES = 12
"""How many times larger the set is than what may be read ahead."""
ROOM_MB = 40
"""By how much the peaks of two processes may differ by chance."""
LIMIT_MB = 130
"""For what is read ahead, the model, its optimizer and threads: less than the set takes."""


def rows(folder: Path, megabytes: float) -> Path:
    count = int(megabytes / ROW_MB)
    path = folder / f"{count}.raw"
    np.random.default_rng(1).standard_normal((count, 4096), np.float32).tofile(path)
    return path


def peak_mb(cli: Cli, file: Path, *words: str) -> float:
    found = cli.json("run", STREAMED, f"file={file}", *words, "checkpoint.every=never", "--json")
    facts = json.loads(Path(found["dir"], "attempts", "1", "attempt.json").read_text())
    return float(facts["max_rss_mb"])


def test_a_set_larger_than_the_memory_takes_no_more_of_it(cli: Cli, tmp_path: Path) -> None:
    small, large = rows(tmp_path, READ_AHEAD_MB), rows(tmp_path, TIMES * READ_AHEAD_MB)
    ahead, limit = f"read_ahead={READ_AHEAD_MB}", f"memory_mb={LIMIT_MB}"
    low = peak_mb(cli, small, ahead)
    assert peak_mb(cli, large, ahead, limit) < low + ROOM_MB
    kept = peak_mb(cli, large, "kept=true")
    assert kept > low + (TIMES - 2) * READ_AHEAD_MB, "the measurement sees a set in memory"
    failed = cli("run", STREAMED, f"file={large}", "kept=true", limit, check=100)
    assert "ran out of memory" in failed.stderr, "the set does not fit into the limit"


@pytest.mark.slow  # a minute; tests/multirank/test_streaming.py stops and kills in less
def test_the_drill_passes_with_a_slow_reader(cli: Cli, tmp_path: Path) -> None:
    names = ["rank-killed", "ranks-killed"]
    done = cli(
        *("drill", STREAMED, f"file={rows(tmp_path, 6)}", "pause_s=0.1", "width=2048"),
        *("readers=2", "checkpoint.every=1steps", "--tasks-per-node", "2", "--json"),
        *(word for name in names for word in ("--fault", name)),
        *("--kills", "2"),
        timeout=1200,
    )
    trials = json.loads(done.stdout)["trials"]
    assert [trial["fault"] for trial in trials] == names
    for trial in trials:
        assert (trial["survived"], trial["equal"], trial["why"]) == (True, True, ""), trial
