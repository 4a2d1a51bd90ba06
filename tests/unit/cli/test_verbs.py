"""Verbs that people know from other tools, and one style for every error."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rampup.cli import logs
from rampup.cli.app import main


def call(
    line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], folder: Path
) -> tuple[int, str, str]:
    """Run a command line in this process; return its exit code, stdout and stderr."""
    monkeypatch.setenv("RAMPUP_RUNS", str(folder))
    monkeypatch.setenv("XDG_STATE_HOME", str(folder))
    monkeypatch.delenv("RAMPUP_DEBUG", raising=False)
    monkeypatch.setattr(sys, "argv", ["rampup", *line.split()])
    with pytest.raises(SystemExit) as ended:
        main()
    printed = capsys.readouterr()
    assert isinstance(ended.value.code, int)
    return ended.value.code, printed.out, printed.err


@pytest.mark.parametrize(
    ("line", "usage"),
    [
        ("ls --help", "rampup list"),
        ("ps --help", "rampup list"),
        ("status --help", "rampup show"),
        ("stop --help", "rampup cancel"),
        ("kill --help", "rampup cancel"),
        ("tail --help", "rampup logs"),
        ("help run", "rampup run"),
        ("help", "rampup [OPTIONS] COMMAND"),
    ],
)
def test_an_alias(
    line: str,
    usage: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    code, out, _ = call(line, monkeypatch, capsys, tmp_path)
    assert code == 0 and f"Usage: {usage}" in out


def test_tail_follows(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    asked: list[dict[str, Any]] = []
    monkeypatch.setattr(logs.command, "callback", lambda **given: asked.append(given) or 0)
    assert call("tail abcdef -n 5", monkeypatch, capsys, tmp_path)[0] == 0
    (given,) = asked
    assert (given["run"], given["follow"], given["last"]) == ("abcdef", True, 5)


@pytest.mark.parametrize(
    ("line", "message", "hint"),
    [
        ("stop", "there is no default", "rampup cancel RUN"),
        ("kill", "there is no default", "rampup cancel RUN"),
        ("rm", "unknown command 'rm'", "rampup clean RUN"),
        ("delete", "unknown command 'delete'", "rampup clean RUN"),
        ("version", "unknown command 'version'", "rampup --version"),
        ("init", "unknown command 'init'", "rampup new"),
        ("submit", "unknown command 'submit'", "--on CLUSTER"),
        ("compare", "unknown command 'compare'", "rampup report RUN RUN"),
        ("open", "unknown command 'open'", "rampup report RUN"),
        ("top", "unknown command 'top'", "--state running"),
        ("queue", "unknown command 'queue'", "--state pending"),
        ("sandbox start", "unknown command 'rampup sandbox start'", "rampup sandbox up"),
        ("sandbox stop", "unknown command 'rampup sandbox stop'", "rampup sandbox down"),
        ("recipe new", "unknown command 'rampup recipe new'", "rampup new DIRECTORY"),
        ("cluster add", "unknown command 'rampup cluster add'", "rampup cluster probe --save"),
        ("cluster edit", "unknown command 'rampup cluster edit'", "rampup cluster show NAME"),
        ("resume a epochs=5", "keeps its settings: 'epochs=5'", "rampup run RECIPE epochs=5"),
        ("show a b", "unexpected extra argument (b)", "rampup show --help"),
        ("list --state foo", "'foo' is not one of", "rampup list --help"),
        ("list --nope", "no such option: --nope", "rampup list --help"),
        ("list --colums lr", "no such option: --colums", "did you mean --columns?"),
        ("export", "missing option '--to'. Choose from: csv, mlflow,", "rampup export --help"),
        ("run mnist --time", "option '--time' requires an argument", "rampup run --help"),
    ],
)
def test_an_error_has_a_hint(
    line: str,
    message: str,
    hint: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    code, _, err = call(line, monkeypatch, capsys, tmp_path)
    first, second = err.splitlines()
    assert code == 2
    assert first.startswith("error: ") and message in first
    assert second.startswith("hint: ") and hint in second


@pytest.mark.parametrize("line", ["", "sandbox"])
def test_no_verb_shows_the_help(
    line: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    code, _, err = call(line, monkeypatch, capsys, tmp_path)
    assert code == 2 and err.startswith("Usage: rampup") and "error:" not in err


DROPPED = """
import os, signal, sys, time
from rampup import __main__
from rampup.cli import app

class Watched:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0)

def work(*_, **__):
    Watched()
    time.sleep(20)

app.cli.main = work
__main__.main()
"""
"""Ctrl-C comes where Python drops exceptions."""


def test_ctrl_c_is_not_lost_where_python_drops_exceptions() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", DROPPED], capture_output=True, text=True, timeout=15, check=False
    )
    assert (ended.returncode, ended.stderr) == (130, "")
