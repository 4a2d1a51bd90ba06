"""Metric rows: valid JSON, flushed in time, and never lost in silence."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rampup.rundir.files import RunDir
from rampup.runtime.job import Job
from rampup.runtime.storage import StorageError
from rampup.runtime.telemetry.metrics import EventsWriter, MetricsWriter, NoMetrics
from rampup.runtime.telemetry.progress import Phases


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    found = RunDir(tmp_path)
    found.attempt(1).path.mkdir(parents=True)
    return found


def test_rows_arrive_at_the_latest_with_close(run: RunDir) -> None:
    writer = MetricsWriter(run.attempt(1))
    writer.write(1, loss=0.5)
    writer.write(2, loss=0.25, accuracy=np.float32(0.5))
    writer.close()
    rows = run.attempt(1).metrics()
    assert [(row["step"], row["loss"]) for row in rows] == [(1, 0.5), (2, 0.25)]
    assert rows[1]["accuracy"] == 0.5 and rows[1]["t"] >= rows[0]["t"] > 1e9


def test_rows_are_buffered_but_not_for_long(run: RunDir, eventually: Callable[..., None]) -> None:
    writer = MetricsWriter(run.attempt(1))
    for step in (1, 2, 3):
        writer.write(step, loss=1.0)
    assert run.attempt(1).metrics() == []
    eventually(
        lambda: len(run.attempt(1).metrics()) == 3,
        what="a loop that is silent now still shows its last rows",
    )
    writer.write(4, loss=1.0)
    writer.flush()
    assert len(run.attempt(1).metrics()) == 4
    writer.close()


def test_a_failure_between_two_rows_is_raised_by_the_next(
    run: RunDir, eventually: Callable[..., None]
) -> None:
    writer = MetricsWriter(run.attempt(1))
    run.attempt(1).metrics_file.unlink()
    writer.write(1, loss=1.0)
    with pytest.raises(StorageError, match="it was removed"):
        eventually(lambda: writer.write(2, loss=1.0))


def test_the_last_value_of_every_metric_is_kept(run: RunDir) -> None:
    writer = MetricsWriter(run.attempt(1))
    writer.write(1, epoch=1, val_accuracy=0.9)
    writer.write(2, epoch=1, train_loss=0.1)
    writer.close()
    assert (writer.last["step"], writer.last["val_accuracy"], writer.last["train_loss"]) == (
        2,
        0.9,
        0.1,
    )


def test_what_is_no_number_is_valid_json_and_said_once(
    run: RunDir, capsys: pytest.CaptureFixture[str]
) -> None:
    writer = MetricsWriter(run.attempt(1))
    for step in (1, 2):
        writer.write(step, loss=float("nan"), norm=float("inf"), lr=0.1)
    writer.close()
    lines = run.attempt(1).metrics_file.read_text().splitlines()
    row = json.loads(lines[0], parse_constant=pytest.fail)
    assert row["loss"] is None and row["norm"] is None and row["lr"] == 0.1
    assert capsys.readouterr().out.splitlines() == [
        "warning: loss is nan at step 1; it is recorded as null",
        "warning: norm is inf at step 1; it is recorded as null",
    ]


def test_a_removed_file_is_an_error(run: RunDir) -> None:
    writer = MetricsWriter(run.attempt(1))
    writer.write(1, loss=1.0)
    run.attempt(1).metrics_file.unlink()
    writer.write(2, loss=1.0)
    with pytest.raises(StorageError, match=r"metrics\.jsonl: it was removed") as caught:
        writer.close()
    assert "df -h" in caught.value.hint and caught.value.exit_code == 74


def test_a_missing_directory_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="No such file or directory"):
        MetricsWriter(RunDir(tmp_path / "gone").attempt(1))


def test_events_arrive_at_once(run: RunDir) -> None:
    writer = EventsWriter(run.attempt(1))
    writer.write("end", metrics={"loss": 0.5}, best=None)
    event = run.attempt(1).event("end")
    assert event is not None and event["metrics"] == {"loss": 0.5} and event["t"] > 1e9
    writer.close()


def test_a_job_that_breaks_off_still_tells_where_its_time_went(run: RunDir) -> None:
    for ended in (False, True):
        events: Any = EventsWriter(run.attempt(1))
        nothing: Any = None
        job = Job(
            nothing,
            nothing,
            0,
            NoMetrics(),
            events,
            nothing,
            nothing,
            nothing,
            nothing,
            Phases(time.time() - 5),
        )
        if ended:
            events.write("end", phases={"wall": 9.0})
        job.close()
    phases = [event for event in run.attempt(1).events() if event["what"] == "phases"]
    assert len(phases) == 1 and phases[0]["phases"]["wall"] >= 5


def test_a_step_of_any_library_is_a_number(run: RunDir) -> None:
    writer = MetricsWriter(run.attempt(1))
    writer.write(np.int64(7), loss=1.0)  # type: ignore[arg-type]
    writer.close()
    assert run.attempt(1).metrics()[0]["step"] == 7
