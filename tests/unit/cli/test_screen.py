"""The moving line: a bar where the length is known, and it fits."""

import json
from pathlib import Path

import pytest

from rampup.cli import width
from rampup.cli.follow import StudyScreen
from rampup.cli.screen import Pace, Progress
from unit.cli.finished_runs import make_run

BEAT = {"step": 50, "steps": 200, "epoch": 1, "epochs": 4, "train_loss": 0.5, "t": 100.0}


def test_a_bar_has_its_label_from_the_first_heartbeat_on() -> None:
    progress = Progress()
    first = progress.format({**BEAT, "samples_s": 1234.5}, 79)
    assert first.startswith("epoch 1/4 ━") and " 25%  loss 0.5  1,234 samples/s  left -:--" in first
    later = progress.format({**BEAT, "step": 100, "t": 110.0}, 79)
    assert " 50% " in later and later.endswith("left 0:20")


def test_the_bar_keeps_its_length_while_numbers_change() -> None:
    progress = Progress()
    beats = [{**BEAT, "samples_s": rate, "train_loss": 0.4321} for rate in (12345.0, 3.2)]
    lines = [progress.format(beat, 79) for beat in beats]
    assert len({sum(each in "━─" for each in line) for line in lines}) == 1


def test_epochs_alone_make_a_bar() -> None:
    beat = {"step": 9, "steps": None, "epoch": 48.0, "epochs": 200, "t": 1.0}
    assert Progress().format(beat, 79).startswith(
        "epoch 48/200 ━"
    ) and " 24% " in Progress().format(beat, 79)


def test_a_loop_of_unknown_length_has_a_line() -> None:
    progress = Progress()
    beat = {"step": 57, "steps": None, "epoch": None, "epochs": None, "metrics": {"recall": 0.25}}
    assert progress.format({**beat, "t": 1.0}, 79) == "step 57  recall 0.25"
    assert progress.format({**beat, "step": 67, "t": 2.0}, 79).endswith("  10 steps/s")


@pytest.mark.parametrize("room", [19, 39, 79, 139])
def test_the_line_fits(room: int) -> None:
    metrics = {"精度の名前" * 12: 0.5, "x" * 60: 1.0}
    for beat in ({**BEAT, "metrics": metrics, "samples_s": 1e9}, {"step": 1, "metrics": metrics}):
        assert width.measure(Progress().format(beat, room)) <= max(room, 30)


def test_a_beat_of_odd_values_is_drawn() -> None:
    assert Progress().format({"step": "x", "steps": [], "epoch": None, "t": "now"}, 79) == "running"


def test_the_pace_is_that_of_the_last_minute() -> None:
    pace = Pace()
    for t in range(101):
        pace.note(float(t), t * 1.0 if t <= 30 else 30 + (t - 30) * 10.0)
    assert pace.per_s() == pytest.approx(10, rel=0.1)
    pace.note(101.0, 0.0)
    assert pace.per_s() is None, "another attempt"


def test_the_line_of_a_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [make_run(tmp_path, run_id) for run_id in ("aaaaaa", "bbbbbb", "cccccc")]
    for run, beat in zip(runs, (BEAT, {"step": 3, "t": 1.0}, {}), strict=True):
        run.attempt(1).progress_file.write_text(json.dumps(beat))
    screen = StudyScreen()

    def draw(*names: int) -> str:
        screen.line.can_move, screen.line.drawn_at = True, 0.0
        screen.update([runs[name] for name in names], 4, 9)
        return capsys.readouterr().err.removeprefix("\r\x1b[K")

    assert draw(0).startswith("4 of 9 ended  epoch 1/4 ━") and " 25%  loss 0.5  " in draw(0)
    assert draw(2) == "4 of 9 ended  starting 1 rank"
    assert draw(0, 1, 2) == "4 of 9 ended  aaaaaa 25%  bbbbbb step 3  cccccc starting"
    assert width.measure(draw(*range(3), *range(3))) <= 79
    screen.say("words")
    assert capsys.readouterr().err == "\r\x1b[Kwords\n", "in place of the line"
