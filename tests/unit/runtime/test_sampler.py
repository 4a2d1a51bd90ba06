"""The sampler sees the machine and the run's own processes, and never disturbs a run."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rampup.rundir.records import read_jsonl
from rampup.runtime.telemetry import sampler as module
from rampup.runtime.telemetry.sampler import Sampler, read_gpus, read_tree_usage

NVIDIA_SMI = """#!/bin/sh
echo "0, 87, 1024, 40960"
echo "1, [N/A], 0, 40960"
"""


def test_rows_of_the_machine_and_the_run(
    tmp_path: Path, eventually: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FIRST_AFTER_S", 0.05)
    path = tmp_path / "system.jsonl"
    sampler = Sampler(path, interval_s=0.05).start()
    eventually(lambda: path.exists() and len(path.read_text().splitlines()) >= 2)
    sampler.stop()
    rows = list(read_jsonl(path))
    assert len(rows) >= 3
    for row in rows:
        assert 0 <= row["cpu_percent"] <= 100 and row["cpus"] == os.cpu_count()
        assert 0 < row["mem_used_mb"] < row["mem_total_mb"]
        assert 5 < row["rss_mb"] < row["mem_total_mb"]
    assert rows[-1]["cpu_s"] >= rows[0]["cpu_s"] > 0
    assert rows[-1]["t"] > rows[0]["t"]


def test_a_short_run_gets_its_last_row(tmp_path: Path) -> None:
    sampler = Sampler(tmp_path / "system.jsonl").start()
    sampler.stop()
    assert len(list(read_jsonl(tmp_path / "system.jsonl"))) == 1


def test_descendants_are_counted() -> None:
    burn = "import time\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass\nprint(1, flush=True)"
    code = f"import subprocess, sys, time; subprocess.run([sys.executable, '-c', '''{burn}''']); time.sleep(60)"
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None and child.stdout.readline() == b"1\n"
        time.sleep(0.1)
        rss_mb, cpu_s = read_tree_usage([child.pid])
        assert cpu_s >= 0.25 and rss_mb > 3
    finally:
        child.kill()
        child.communicate()
    assert read_tree_usage([child.pid]) == (0, 0.0)


def test_a_failing_sampler_warns_once(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    sampler = Sampler(tmp_path / "gone" / "system.jsonl").start()
    sampler.stop()
    assert capfd.readouterr().err.count("warning: no more samples") == 1


def test_gpus_are_asked_of_nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text(NVIDIA_SMI)
    program.chmod(0o755)
    first, second = read_gpus(str(program))
    assert first == {"gpu": 0, "util_percent": 87, "mem_used_mb": 1024, "mem_total_mb": 40960}
    assert second["util_percent"] is None
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    Sampler(tmp_path / "system.jsonl").start().stop()
    assert json.loads((tmp_path / "system.jsonl").read_text())["gpus"][0] == first


def test_a_broken_nvidia_smi_costs_only_the_gpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\nexit 9\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    Sampler(tmp_path / "system.jsonl").start().stop()
    (row,) = read_jsonl(tmp_path / "system.jsonl")
    assert "gpus" not in row and row["mem_total_mb"] > 0
