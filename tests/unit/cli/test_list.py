"""`rampup list`: what each column says, the columns that fit, and --watch."""

import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from rampup.cli import list as listing
from rampup.cli import output, watch, width
from rampup.errors import UsageError
from rampup.rundir.files import RunDir
from unit.cli.finished_runs import make_run

RUNNING: dict[str, Any] = {"host": "elsewhere", "outcome": None, "ended": None}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RAMPUP_RUNS", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


def call(*words: str) -> Result:
    return CliRunner().invoke(listing.command, words, catch_exceptions=False, standalone_mode=False)


def add_metrics(run: RunDir, **values: float) -> None:
    run.attempt(1).metrics_file.write_text(json.dumps({"step": 9, "t": 1.0, **values}) + "\n")


def test_a_running_one_says_for_how_long(root: Path) -> None:
    make_run(root, "aaaaaa", attempts=({**RUNNING, "started": time.time() - 125},))
    assert "2 min 05 s" in call().stdout
    (row,) = json.loads(call("--json").stdout)
    assert row["wall_s"] is None and row["running_s"] == pytest.approx(125, abs=5)


def test_a_running_one_says_how_far_it_is(root: Path) -> None:
    run = make_run(root, "aaaaaa", attempts=(RUNNING,))
    beat = {"step": 30, "steps": 120, "t": time.time()}
    run.attempt(1).progress_file.write_text(json.dumps(beat))
    assert call().stdout.splitlines()[1].endswith("  25%")
    add_metrics(run, val_loss=0.5)
    assert call().stdout.splitlines()[1].endswith("  25%  val_loss 0.5")
    make_run(root, "bbbbbb")
    assert [row["done"] for row in json.loads(call("--json").stdout)] == [None, 0.25]


def test_a_failed_one_says_why(root: Path) -> None:
    failed = {"outcome": "failed", "exit_code": 1, "failed_rank": 0, "cause": "rank 0 exited"}
    run = make_run(root, "aaaaaa", attempts=(failed,))
    add_metrics(run, loss=0.5)
    error = {"type": "ValueError", "message": "a bad value", "rank": 0, "t": 1}
    run.attempt(1).error_file(0).write_text(json.dumps(error))
    assert call().stdout.splitlines()[1].endswith("ValueError: a bad value")


def test_the_metric_comes_before_the_epoch(root: Path) -> None:
    run = make_run(root, "aaaaaa")
    add_metrics(run, epoch=3, **{"val_" + "x" * 60: 0.25})
    assert call().stdout.splitlines()[1].endswith("  val_…xxxxxxxxxx 0.25  epoch 3")


def test_columns_that_say_nothing_are_left_out(root: Path) -> None:
    make_run(root, "aaaaaa")
    assert call().stdout.split("\n")[0].split() == ["id", "name", "state", "age", "took", "last"]
    make_run(root, "bbbbbb", attempts=({"job": "4711", "world_size": 4},))
    head, *rows = call().stdout.splitlines()
    assert head.split() == ["id", "job", "name", "state", "age", "took", "ranks", "last"]
    assert [row.split()[-1] for row in rows] == ["4", "1"]


def test_sorting_runs_of_several_names_keeps_the_names(root: Path) -> None:
    """Runs of no study, and of one study beside others, are not compared setting by setting."""
    for number, name in enumerate(("mnist", "digits", "digits")):
        train = {"lr": 0.1 * number, "epochs": number, "seed": 1}
        run = make_run(root, f"aaaaa{number}", name=name, config={"train": train})
        if number:
            identity = {**run.run, "study": "digits", "point": {"lr": train["lr"]}}
            run.run_file.write_text(json.dumps(identity))
    shown = call("--sort", "lr")
    assert shown.stdout.splitlines()[0].split() == ["id", "name", "state", "lr", "took"]
    assert "note:" not in shown.stderr


def test_columns_without_room_are_named(
    root: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    train = {f"setting_number_{number}": 1000 + number for number in range(9)}
    make_run(root, "aaaaaa", config={"train": train})
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    listing.command.main(["--columns", ",".join(train)], standalone_mode=False)
    shown, said = capfd.readouterr()
    assert max(map(width.measure, shown.splitlines())) <= 80
    assert "1,000" in shown and "…  …" not in shown, "a column that is shown can be read"
    assert "no room for: " in said and "setting_number_8" in said


# colours ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("env", "coloured"), [({}, True), ({"NO_COLOR": ""}, False)])
def test_states_have_colours(
    env: dict[str, str], coloured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    page = watch.Page()
    assert (
        output.tame(output.paint_state("failed", stream=page)) == "\x1b[31mfailed\x1b[0m"
    ) is coloured
    assert (
        output.tame(output.paint_state("completed", stream=page)) == "\x1b[32mcompleted\x1b[0m"
    ) is coloured


# --watch ------------------------------------------------------------------------------------------


def test_watching_needs_a_terminal(root: Path) -> None:
    for more in ((), ("--json",)):
        with pytest.raises(UsageError, match="needs a terminal"):
            call("--watch", *more)


def test_a_page_is_cut_to_the_screen() -> None:
    drawn = watch.draw(["one", "two", "three"], rows=3)
    assert drawn == "\x1b[Hone\x1b[K\ntwo\x1b[K\n\x1b[J"


def test_a_page_is_what_the_verb_prints(root: Path) -> None:
    make_run(root, "aaaaaa")
    asked = listing.Wanted(None, False, None, None, None, None, None)
    lines = watch.read_page(lambda: listing.show_listing(asked))
    assert any("aaaaaa" in line for line in lines) and lines[-1].endswith("rampup show aaaaaa")
