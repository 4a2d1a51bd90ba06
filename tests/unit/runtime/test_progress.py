"""Progress: greppable lines that never flood a log, a heartbeat in place, and next to no cost per
step."""

import json
import time
from pathlib import Path

import pytest

from rampup.runtime.telemetry.progress import BEAT_BYTES, NoProgress, Progress


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def begun(file: Path | None, clock: Clock, loss: float | None = 0.5) -> Progress:
    progress = Progress(file, clock=clock)
    progress.begin(steps=1000, epochs=10, loss=lambda: loss)
    return progress


def test_one_line_in_thirty_seconds(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    progress = begun(None, clock)
    for step in range(1, 651):
        clock.now += 0.1
        progress.step(step, 1, step * 10)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    fields = dict(field.split("=") for field in lines[1].split())
    assert fields["epoch"] == "1/10" and fields["train_loss"] == "0.5"
    assert float(fields["samples_s"]) == pytest.approx(100, rel=0.01)
    assert int(fields["eta_s"]) == pytest.approx((1000 - int(fields["step"])) * 0.1, abs=1)


def test_one_line_per_epoch(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    progress = begun(None, clock)
    clock.now += 30
    progress.milestone(
        300, {"epoch": 3, "train_loss": 0.07231, "val_accuracy": 0.9721, "samples_s": 51234.5}
    )
    progress.step(301, 4, 100)
    expected = (
        "epoch=3/10 step=300 train_loss=0.07231 val_accuracy=0.9721 samples_s=51234 eta_s=70\n"
    )
    assert capsys.readouterr().out == expected


def test_the_heartbeat_is_one_line_in_place(clock: Clock, tmp_path: Path) -> None:
    file = tmp_path / "progress.json"
    progress = begun(file, clock)
    for step, seconds in ((1, 0.4), (2, 0.2), (3, 0.2), (4, 0.2), (5, 0.2)):
        clock.now += seconds
        progress.step(step, 1, step)
    text = file.read_text()
    beat = json.loads(text)
    assert len(text) == BEAT_BYTES and text.endswith("\n")
    assert (beat["step"], beat["steps"], beat["epoch"], beat["epochs"]) == (4, 1000, 1, 10)
    assert beat["train_loss"] == 0.5 and beat["t"] > 1e9
    progress.milestone(10, {"epoch": 1, "train_loss": 0.1, "samples_s": 20.0})
    assert json.loads(file.read_text())["step"] == 10 and len(file.read_text()) == BEAT_BYTES
    progress.end()


def test_a_loss_that_is_no_number_keeps_the_heartbeat_valid(clock: Clock, tmp_path: Path) -> None:
    progress = begun(tmp_path / "beat", clock, loss=float("nan"))
    clock.now += 1
    progress.step(1, 1, 1)
    progress.end()
    assert (
        json.loads((tmp_path / "beat").read_text(), parse_constant=pytest.fail)["train_loss"]
        is None
    )


def test_the_first_row_is_shown_at_once_and_then_one_in_thirty_seconds(
    clock: Clock, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    progress = begun(tmp_path / "beat", clock)
    assert progress.report(1, {"loss": 1.0})
    assert json.loads((tmp_path / "beat").read_text())["step"] == 1
    clock.now += 29
    assert not progress.report(2, {"loss": 0.7})
    clock.now += 2
    assert progress.report(3, {"loss": 0.5, "t": 12345.0})
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["step=1 loss=1 eta_s=0", "step=3 loss=0.5 eta_s=10302"]
    assert NoProgress().report(4, {})
    progress.end()


def test_the_heartbeat_has_metrics_of_any_name_while_they_fit(clock: Clock, tmp_path: Path) -> None:
    file = tmp_path / "beat"
    progress = begun(file, clock)
    progress.report(1, {"recall": 0.5, "note": "high"})
    assert json.loads(file.read_text())["metrics"] == {"recall": 0.5, "note": None}
    clock.now += 1
    progress.report(2, {"m" * 400: 0.5})
    assert "metrics" not in json.loads(file.read_text()) and len(file.read_text()) == BEAT_BYTES
    progress.end()


def test_stages_of_the_start_are_overwritten_by_steps(clock: Clock, tmp_path: Path) -> None:
    file = tmp_path / "beat"
    progress = Progress(file, clock=clock)
    progress.stage("reading data")
    beat = json.loads(file.read_text())
    assert beat["stage"] == "reading data" and "step" not in beat
    progress.begin(steps=10, epochs=1, loss=lambda: 0.5)
    progress.step(1, 1, 8)
    beat = json.loads(file.read_text())
    assert beat["step"] == 1 and "stage" not in beat
    progress.end()


def test_a_step_costs_next_to_nothing() -> None:
    progress = Progress(None)
    progress.begin(steps=10**9, epochs=1, loss=lambda: None)
    begin = time.thread_time()
    for step in range(20_000):
        progress.step(step, 1, step)
    assert (time.thread_time() - begin) / 20_000 < 5e-6  # far above what it takes, far below a step
