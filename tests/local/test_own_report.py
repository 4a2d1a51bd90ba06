"""On a terminal a report is made by itself: after a run, after `wait`, at the end of `--follow`.
Never in a script."""

import json
import os
import pty
import select
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import RAMPUP

SCRIPT = """
    import rampup
    with rampup.init() as run:
        for step in range(3):
            run.log(step=step, loss=1 / (step + 1))
"""


def on_terminal(cli: Any, *words: str, **env: str) -> tuple[int, str]:
    """The exit code, and all that a person sees."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [*RAMPUP, *words],
        cwd=cli.cwd,
        env={**cli.env, **env},
        stdin=slave,
        stdout=slave,
        stderr=slave,
    )
    os.close(slave)
    seen, deadline = b"", time.monotonic() + 60
    while time.monotonic() < deadline:
        if select.select([master], [], [], 0.1)[0]:
            try:
                data = os.read(master, 65536)
            except OSError:  # the other side is closed
                break
            if not data:
                break
            seen += data
    code = process.wait(timeout=45)
    os.close(master)
    return code, seen.decode(errors="replace").replace("\r\n", "\n")


def test_after_a_run_in_the_foreground(cli: Any) -> None:
    code, seen = on_terminal(cli, "run", "--", "python", cli.script(SCRIPT))
    (run,) = cli.runs.glob("2*")
    assert code == 0 and f"\nreport: {run / 'report.html'}\n" in seen, seen
    assert "<title>script" in (run / "report.html").read_text()
    assert seen.splitlines()[-2:] == [
        f"next: rampup show {run.name[-6:]}",
        f"  or: tensorboard --logdir {run / 'tb'}",
    ], "a command is never folded"


def test_a_run_that_failed_has_one_too_and_keeps_its_exit_code(cli: Any) -> None:
    code, seen = on_terminal(cli, "run", "--", "sh", "-c", "exit 3")
    (run,) = cli.runs.glob("2*")
    assert code == 100 and f"report: {run / 'report.html'}" in seen and "next: rampup logs" in seen
    assert "exited with code 3" in (run / "report.html").read_text()


def test_after_wait(cli: Any) -> None:
    run = Path(json.loads(cli("run", "--detach", "--json", "--", "sleep", "0.3").stdout)["dir"])
    code, seen = on_terminal(cli, "wait")
    assert code == 0 and (run / "report.html").exists() and "report: " in seen


def test_a_script_gets_none(cli: Any) -> None:
    done = cli("run", "--", "python", cli.script(SCRIPT))
    (run,) = cli.runs.glob("2*")
    assert "report" not in done.stderr and not (run / "report.html").exists()
    assert "or tensorboard --logdir" in done.stderr.splitlines()[-1]


def test_a_cancelled_run_gives_back_the_prompt_at_once(cli: Any) -> None:
    run = Path(json.loads(cli("run", "--detach", "--json", "--", "sleep", "60").stdout)["dir"])
    cli("cancel", run.name[-6:])
    code, seen = on_terminal(cli, "wait")
    assert code == 103 and "report: " not in seen and not (run / "report.html").exists()


@pytest.mark.parametrize(
    "trouble", ["the file can't be written", "a library is broken", "a library is missing"]
)
def test_a_report_that_fails_changes_nothing(cli: Any, tmp_path: Path, trouble: str) -> None:
    env = {}
    if trouble == "the file can't be written":
        block = 'mkdir "$RAMPUP_RUN_DIR/report.html"'
    else:
        block, fake = "true", tmp_path / "fake"
        fake.mkdir()
        (fake / "altair.py").write_text("raise SystemExit('altair is broken')")
        env = {"PYTHONPATH": str(fake)}
    if trouble == "a library is missing":
        (tmp_path / "fake" / "altair.py").unlink()
        hide = "import sys\nsys.modules['altair'] = None\n"
        (tmp_path / "fake" / "sitecustomize.py").write_text(hide)
    code, seen = on_terminal(cli, "run", "--", "sh", "-c", block, **env)
    assert code == 0 and "completed" in seen and "report: " not in seen and "Traceback" not in seen
    assert ("note: no report was made: " in seen) == (trouble != "a library is missing")
    assert seen.splitlines()[-1].startswith("next: ")
