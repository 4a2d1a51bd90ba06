"""No text of a run tells a terminal anything, and none looks like a line of rampup."""

import csv
import io
import json
import os
from pathlib import Path

import pytest
from hostile import directories
from hostile.terminal import OBEYED, FakeTerminal, call

from rampup.cli import logs, output
from rampup.cli.ending import metrics_line
from rampup.core import paths
from rampup.core.harmless import escape, escape_line
from rampup.errors import Refused
from rampup.export import csv as table
from rampup.rundir.files import RunDir


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDir:
    monkeypatch.setenv("RAMPUP_RUNS", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    made = RunDir(tmp_path / "20261117-010101-nice-abc234")
    made.path.mkdir()
    directories.write_sound(made)
    return made


@pytest.mark.parametrize("text", directories.ESCAPES)
def test_a_command_to_a_terminal_becomes_text(text: str) -> None:
    shown = escape_line(f"a{text}b")
    assert not OBEYED.search(shown) and "\n" not in shown and shown.encode()
    assert escape(shown) == shown, "and stays text"
    assert escape_line("grüße 日本 😀 e\u0301\u200d") == "grüße 日本 😀 e\u0301\u200d"


def test_lines_stay_lines_where_they_are_meant() -> None:
    assert escape("a\tb\n\x1b[2J\u202e") == "a\tb\n\\x1b[2J\\u202e"
    assert escape_line("a\nb\t") == "a\\x0ab\\x09"


def test_only_our_own_colours_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    line = output.paint("a\x1b[31m\x1b[0;31m\nb", output.BOLD, FakeTerminal()) + "\x1b]0;c\x07"
    assert output.tame(line) == ("\x1b[1ma\\x1b[31m\\x1b[0;31m\\x0ab\x1b[0m\\x1b]0;c\\x07")


def test_what_held_no_name_back_before(run: RunDir) -> None:
    """Names of runs, metrics, settings and jobs; on a terminal, in colour."""
    odd = "a\x1b[31m\x1b]0;T\x07\u202e\nnext: rm"
    directories.write(run.run_file, [{"id": run.id, "name": odd, "created": 1.0}])
    config = {"kind": "engine", "train": {odd: odd}, "origins": {f"train.{odd}": odd}}
    directories.write(run.config_file, [config])
    directories.write(run.attempt(1).metrics_file, [{"step": 1, odd: 0.5, f"val_{odd}": odd}])
    for words in (
        ("list",),
        ("list", "--columns", f"id,{odd}"),
        ("list", "--columns", f"id,{odd}x"),  # the hint names what there is
        ("list", odd),
        ("show", run.id),
        ("show", run.id, "--all"),
        ("show", run.id, "--history"),
        ("why", run.id),
        ("export", run.id, "--to", "csv"),
    ):
        called = call(*words)
        plain = (called.out + called.err).replace("\x1b[0m", "")
        for colour in (1, 2, 31, 32, 33, 34):
            plain = plain.replace(f"\x1b[{colour}m", "")
        assert not OBEYED.search(plain) and "\nnext: rm" not in plain, (words, plain)


def test_logs_let_colours_pass_on_a_terminal(
    run: RunDir, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    text = b"\x1b[1;32mgreen\x1b[0m \x1b[2J\x1b]52;c;x\x07 12%\r13%\n\xc3\xbc\xff \x9b2J \x1b[38;5"
    run.attempt(1).rank_log(0).write_bytes(text)
    called = call("logs", run.id)
    assert called.out == (
        "\x1b[1;32mgreen\x1b[0m \\x1b[2J\\x1b]52;c;x\\x07 12%\r13%\nü\ufffd \ufffd2J "
        "\\x1b[38;5\x1b[0m"
    )
    logs.command.main([run.id], standalone_mode=False)
    assert capfdbinary.readouterr().out == text, "raw into a pipe"


def test_a_colour_that_comes_in_two_parts_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = FakeTerminal()
    monkeypatch.setattr("sys.stdout", screen)
    printer = logs.Printer()
    for part in (b"a\x1b", b"[3", b"1mb\x1b", b"]0;c\x07", b"\xc3", b"\xbc"):
        printer.print(part)
    printer.close()
    assert screen.text() == "a\x1b[31mb\\x1b]0;c\\x07ü\x1b[0m"


def test_a_long_log_is_read_by_its_end(run: RunDir) -> None:
    log = run.attempt(1).rank_log(0)
    with open(log, "wb") as file:
        file.write(b"begin\n")
        file.seek(directories.TERABYTE)
        file.write(b"\nthe end\n")
    assert call("logs", run.id, "-n", "1").out == "the end\n"
    assert call("logs", run.id).out.replace("\\x00", "") == "begin\n\nthe end\n"
    called = call("logs", run.id, "--json")
    assert called.cpu_s < 5 and json.loads(called.out)["lines"][-1] == "the end"


def test_following_begins_with_the_last_lines_of_a_long_log(run: RunDir) -> None:
    """It is read in parts, and only the end of all of them is shown."""
    lines = [f"line {number} {'x' * 990}\n" for number in range(9000)]
    run.attempt(1).rank_log(0).write_text("".join(lines))
    assert call("logs", run.id, "--follow", "-n", "2").out == "".join(lines[-2:])
    assert call("logs", run.id, "--follow").out == "".join(lines)


def test_five_thousand_metrics_fit_a_screen(run: RunDir) -> None:
    metrics = {f"metric_{number}": 0.5 for number in range(5000)}
    directories.write(run.attempt(1).metrics_file, [{"step": 1, **metrics}])
    assert len(call("show", run.id).out) < 4000
    line = metrics_line(metrics, None)
    assert len(line) < 2000 and line.endswith("and 4,950 more: --history")


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("=cmd|' /C calc'!A0", "'=cmd|' /C calc'!A0"),
        ("@SUM(1)", "'@SUM(1)"),
        ("+1+2", "'+1+2"),
        ("-2+3", "'-2+3"),
        ("\t=1", "\\x09=1"),
        ("-0.5", "-0.5"),
        ("val_loss", "val_loss"),
    ],
)
def test_no_cell_is_a_formula(run: RunDir, text: str, cell: str) -> None:
    directories.write(run.attempt(1).metrics_file, [{"step": 1, "t": 1.0, text: 1, "word": text}])
    rows = list(csv.reader(io.StringIO(call("export", run.id, "--to", "csv").out)))
    assert cell in rows[0] and cell in rows[1], rows
    assert table.cell(-0.5) == -0.5, "numbers are numbers"


def test_a_place_without_a_home_is_the_users_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nowhere() -> Path:
        raise RuntimeError

    monkeypatch.setattr(Path, "home", nowhere)
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    folder = paths.state_home().parents[1]
    assert folder.parent == tmp_path and folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o755)
    with pytest.raises(Refused, match="not yours alone"):
        paths.state_home()
    folder.rmdir()
    folder.symlink_to(tmp_path)
    with pytest.raises(Refused, match="not yours alone"):
        paths.state_home()
    folder.unlink()
    folder.mkdir(mode=0o700)
    if os.geteuid() == 0:
        os.chown(folder, 65534, 65534)
        with pytest.raises(Refused, match="not yours alone"):
            paths.state_home()
