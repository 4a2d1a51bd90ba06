"""`rampup show` fits a screen and says what matters first; verbs name their run."""

import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rampup.cli import cancel, export, logs, show, wait, why
from rampup.cli import list as listing
from rampup.cli.ending import add_cause, metrics_line, report_end
from rampup.rundir.files import RunDir
from unit.cli.finished_runs import make_run

ROWS, COLUMNS = 24, 80
CONFIG: dict[str, Any] = {
    "kind": "engine",
    "recipe": "digits",
    "engine": "torch",
    "builtin": True,
    "train": {"lr": 0.1, "epochs": 200, "seed": 1, "clip": None},
    "checkpoint": {"every": "auto", "keep": 2},
    "resources": {"nodes": 2, "time": "1:00:00", "slurm": ["nice=5"], "mem": None},
    "cluster": {"name": "archer2", "launcher": "srun"},
    "origins": {
        "train.lr": "command line",
        "train.epochs": "recipe.toml",
        "train.seed": "default",
        "train.clip": "default",
        "checkpoint.every": "default",
        "checkpoint.keep": "default",
        "resources.nodes": "--nodes",
        "resources.time": "--time",
        "resources.slurm": "--slurm",
        "cluster.launcher": "archer2.toml",
    },
}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RAMPUP_RUNS", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


def call(command: Any, *words: str) -> str:
    done = CliRunner().invoke(command, words, catch_exceptions=False, standalone_mode=False)
    return done.stdout


def add_progress(run: RunDir, step: int, seconds_ago: float) -> None:
    """Rank 0 began to train two minutes ago, and wrote this a moment ago."""
    attempt = run.last_attempt()
    assert attempt is not None
    now = time.time()
    attempt.events_file.write_text(json.dumps({"what": "start", "t": now - 120}) + "\n")
    beat = {"step": step, "steps": 900, "epoch": 3.0, "epochs": 20, "t": now - seconds_ago}
    attempt.progress_file.write_text(json.dumps(beat))


def test_what_was_set_comes_first_and_defaults_are_counted(root: Path) -> None:
    code = {"commit": "0123abc", "dirty": True}
    make_run(root, "aaaaaa", config=CONFIG, code=code, attempts=({"job": "42", "nodes": "n[1-2]"},))
    shown = call(show.command).splitlines()
    assert shown[0] == "digits  aaaaaa  completed after 5.0 s"
    assert "where: archer2, job 42, n[1-2], 1 rank" in shown
    typed = "rampup run digits lr=0.1 --nodes 2 --time 1:00:00 --slurm nice=5 --on archer2"
    assert f"command: {typed}" in shown
    assert "code: commit 0123abc, with uncommitted changes" in shown
    assert "settings (command line): lr=0.1" in shown
    assert "settings (recipe.toml): epochs=200" in shown
    assert "settings (options): nodes=2  time=1:00:00  slurm=['nice=5']" in shown
    assert "4 defaults: --all" in shown
    assert not any("seed" in line for line in shown)
    whole = call(show.command, "--all")
    assert "seed" in whole and "defaults" not in whole
    facts = json.loads(call(show.command, "--json"))
    assert (facts["job"], facts["cluster"], facts["nodes"]) == ("42", "archer2", "n[1-2]")


def test_the_command_of_a_script(root: Path) -> None:
    own = {
        "kind": "command",
        "command": ["python", "my script.py"],
        "cluster": {"name": "local"},
        "train": {"lr": 1, "tta": False},
        "origins": {"train.lr": "command line", "train.tta": "command line"},
    }
    make_run(root, "aaaaaa", config=own)
    assert "command: rampup run lr=1 tta=false -- python 'my script.py'\n" in call(show.command)


def test_progress_with_the_time_that_is_left(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    running = {"host": "elsewhere", "outcome": None, "ended": None, "started": time.time() - 130}
    make_run(root, "aaaaaa", attempts=({}, running))
    run = RunDir(next(root.glob("*-aaaaaa")))
    add_progress(run, 300, 0.0)  # 120 s for 300 steps: 600 more take 240 s
    shown = call(show.command).splitlines()
    assert shown[0].startswith("digits  aaaaaa  running for 2 min 1")
    assert shown[0].endswith("attempt 2")
    assert "progress: epoch 3/20, step 300/900 (33%), 4 min 00 s left" in shown
    assert any(line.split()[:1] == ["2"] and "running" in line for line in shown)
    facts = json.loads(call(show.command, "--json"))
    assert facts["progress"]["left_s"] == pytest.approx(240, 0.1)
    assert facts["tries"][1]["how"] == "running"


def test_a_long_one_fits_a_screen(
    root: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Five attempts on a cluster, eighteen numbers, forty settings of the user's own."""
    many = {f"setting_{number}": number for number in range(40)}
    origins = {f"train.setting_{number}": "command line" for number in range(40)}
    config = {**CONFIG, "train": many, "origins": {**CONFIG["origins"], **origins}}
    failed = {"outcome": "failed", "exit_code": 1, "cause": "words " * 60, "job": "1"}
    run = make_run(root, "aaaaaa", config=config, code={"commit": "a" * 40}, attempts=(failed,) * 5)
    row = {"step": 9, "epoch": 1, **{f"val_number_{number}": 0.123456 for number in range(18)}}
    run.attempt(1).metrics_file.write_text(json.dumps(row) + "\n")
    monkeypatch.setenv("COLUMNS", str(COLUMNS))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    show.command.main([], standalone_mode=False)
    out, err = capfd.readouterr()
    lines = [*out.splitlines(), *err.splitlines()]
    assert max(len(line) for line in lines if "/" not in line) <= COLUMNS
    assert len(lines) <= ROWS, "\n".join(lines)
    assert "cause:" in lines[1]


def test_what_to_do_after_a_run_without_metrics(
    root: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    make_run(root, "aaaaaa")
    show.command.main([], standalone_mode=False)
    assert "next: rampup logs aaaaaa" in capfd.readouterr().err


@pytest.mark.parametrize("verb", [why, show, logs, cancel])
def test_the_first_line_names_the_run(
    root: Path, verb: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    run = make_run(root, "aaaaaa")
    run.attempt(1).rank_log(0).write_text("printed\n")
    verb.command.main(["aaaaaa"], standalone_mode=False)
    out, err = capfd.readouterr()
    first = (err if verb in (logs, cancel) else out).splitlines()[0]
    assert first.replace("  ", " ").startswith("digits aaaaaa")
    if verb is logs:
        assert out == "printed\n", "stdout is the log alone"


def test_an_export_names_the_run_too(root: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run = make_run(root, "aaaaaa")
    run.attempt(1).metrics_file.write_text('{"step": 1, "loss": 0.5, "t": 1}\n')
    export.command.main(["aaaaaa", "--to", "csv"], standalone_mode=False)
    out, err = capfd.readouterr()
    assert err.splitlines()[0] == "digits aaaaaa"
    assert out.startswith("run,step"), "stdout is the table alone"


def test_a_cancelled_run_is_resumed_only_from_a_checkpoint(
    root: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = make_run(root, "aaaaaa", attempts=({"outcome": "cancelled", "cause": "Ctrl-C"},))
    show.command.main([], standalone_mode=False)
    assert "next: rampup logs aaaaaa" in capfd.readouterr().err
    run.checkpoint(5).mkdir(parents=True)
    show.command.main([], standalone_mode=False)
    assert "next: rampup resume aaaaaa" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("cause", "words"),
    [
        ("cancelled by Ctrl-C", " (Ctrl-C)"),
        ("cancelled by rampup cancel", " (rampup cancel)"),
        ("stopped on request", ": stopped on request"),
    ],
)
def test_who_cancelled_is_said_once(cause: str, words: str) -> None:
    assert add_cause(cause) == words


def test_list_has_the_job(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_run(root, "aaaaaa")
    assert "job" not in call(listing.command).splitlines()[0].split()
    make_run(root, "bbbbbb", attempts=({"job": "4711"},))
    head, *rows = call(listing.command).splitlines()
    assert head.split()[:2] == ["id", "job"]
    assert [row.split()[:2] for row in rows] == [["bbbbbb", "4711"], ["aaaaaa", "-"]]
    assert [row["job"] for row in json.loads(call(listing.command, "--json"))] == ["4711", None]


def test_a_hint_is_not_given_twice(root: Path, capfd: pytest.CaptureFixture[str]) -> None:
    saved = {"outcome": "cancelled", "cause": "stopped in good order, on request"}
    run = make_run(root, "aaaaaa", attempts=(saved,))
    run.checkpoint(5).mkdir(parents=True)
    wait.command.main(["aaaaaa"], standalone_mode=False)
    assert capfd.readouterr().err.count("rampup resume aaaaaa") == 1


def test_an_error_that_rank_0_printed_is_not_explained_twice(
    root: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    failed = {"outcome": "failed", "exit_code": 1, "failed_rank": 0, "cause": "it is Keras 3"}
    run = make_run(root, "aaaaaa", attempts=(failed,))
    error = {
        "type": "Refused",
        "message": "it is Keras 3",
        "hint": "use tf_keras",
        "rank": 0,
        "t": 1,
    }
    run.attempt(1).error_file(0).write_text(json.dumps(error))
    report_end(run, 1, as_json=False)
    assert "hint: use tf_keras" not in capfd.readouterr().err
    report_end(run, 1, as_json=False, followed=False)
    assert capfd.readouterr().err.count("hint: use tf_keras") == 1


def test_a_long_name_of_a_metric_leaves_room_for_others() -> None:
    metrics = {"epoch": 1, "val_" + "x" * 60: 0.5, "loss": 0.25}
    assert metrics_line(metrics, 80) == f"last: val_{'x' * 5}…{'x' * 20} 0.5  loss 0.25"
    assert "x" * 60 in metrics_line(metrics, None)


def test_evidence_without_words_is_left_out(root: Path) -> None:
    run = make_run(root, "aaaaaa")
    rows = [{"step": step, "train_loss": None if step > 4 else 1.0, "t": 1} for step in range(9)]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    run.attempt(1).metrics_file.write_text(text)
    shown = call(why.command).splitlines()
    assert any("metrics.jsonl" in line for line in shown)
    assert not any(line.endswith(":") for line in shown)
