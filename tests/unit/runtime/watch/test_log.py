"""What the readers of a log and of files make of lines, pieces of lines and damaged bytes."""

import json
from pathlib import Path
from typing import Any

import pytest

from rampup.core import tfevents
from rampup.core.program import Pattern, parse_lead_s
from rampup.errors import Refused
from rampup.runtime.watch.files import CsvFile, EventFile, Names, TrainerState
from rampup.runtime.watch.log import (
    LONGEST_LINE,
    Found,
    Log,
    MlperfLines,
    PatternLines,
    TrainerLines,
    read_number,
)


def look(source: Any, *lines: str) -> list[Found]:
    return [found for line in lines for found in source.look(line)]


def test_a_line_waits_for_its_end_and_long_ones_are_cut(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log = Log(path)
    assert list(log.read()) == []
    with path.open("ab") as file:
        for part, lines in (
            (b"one\ntw", ["one"]),
            (b"o\rthree", ["two"]),
            (b"\n" + b"x" * 5000, ["three", "x" * LONGEST_LINE]),
            (b"yy\nlast", []),
        ):
            file.write(part)
            file.flush()
            assert list(log.read()) == lines
    assert list(log.read_rest()) == ["last"]
    assert list(log.read_rest()) == []


@pytest.mark.parametrize(
    ("text", "number"),
    [("0.5,", 0.5), ("1e-3", 1e-3), ("87.5%)", 87.5), ("3", 3.0), ("x", None), (True, None)],
)
def test_numbers_as_people_print_them(text: Any, number: float | None) -> None:
    assert read_number(text) == number


def test_mlperf_settings_are_no_metrics() -> None:
    def line(key: str, value: Any, kind: str = "POINT_IN_TIME", **metadata: Any) -> str:
        event = {"event_type": kind, "key": key, "value": value, "metadata": metadata}
        return f"0: :::MLLOG {json.dumps(event)} trailing"

    found = look(
        MlperfLines(),
        line("global_batch_size", 64),
        line("epoch_start", 3, "INTERVAL_START", epoch_num=1),
        line("train_loss", 0.5, step_num=7, epoch_num=1),
        line("tracked_stats", {"throughput": 9.5, "name": "x"}, epoch_num=1),
        line("eval_accuracy", 0.9),
        ":::MLLOG {torn",
        ":::MLLOG [1]",
    )
    assert found == [
        Found({"train_loss": 0.5, "epoch": 1}, 7),
        Found({"throughput": 9.5, "epoch": 1}, 7),
        Found({"eval_accuracy": 0.9}, 7),
    ]


def test_lines_of_trainer_have_the_step_of_the_bar_below_or_none() -> None:
    row = "{'loss': '0.5', 'grad_norm': nan, 'epoch': 0.1}"
    (found,) = look(TrainerLines(), row)
    assert found.step is None
    assert found.values["loss"] == 0.5 and found.values["grad_norm"] != 0
    source = TrainerLines()
    bars = ("  0%|     | 0/50 [00:00<?, ?it/s]", " 50%|##   | 4/8 [00:00<00:01]\x1b[A")
    assert look(source, *bars, row, bars[1]) == []
    (found,) = look(source, " 20%|##   | 10/50 [00:01<00:04]")
    assert found.step == 10
    assert look(TrainerLines(), "{'loss': 1}", "{'epoch': __import__('os')}", "{'epoch': ") == []


def test_patterns_share_a_step_and_rows_are_of_one_line() -> None:
    texts = (r"step=step (\d+)", r"loss=loss (\S+)", r"acc (?P<acc>\S+) f1 (?P<f1>\S+)")
    source = PatternLines([Pattern(text) for text in texts], print)
    found = look(source, "step 3", "loss 0.5 acc 0.9 f1 0.8", "loss none", "acc 1 f1 x")
    assert found == [Found({"loss": 0.5, "acc": 0.9, "f1": 0.8}, 3), Found({"acc": 1.0}, 3)]


def test_a_pattern_that_is_slow_in_all_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rampup.runtime.watch.log.FREE_S", 0.02)
    warnings: list[str] = []
    source = PatternLines([Pattern(r"slow=(a|a)*(\d)"), Pattern(r"loss=(\d)")], warnings.append)
    found = look(source, *["aaaaaaaaaaaaaa! 1"] * 2000)
    assert [words for words in warnings if "slow" in words and "in all" in words]
    assert found[-1].values == {"loss": 1.0}


@pytest.mark.parametrize(("text", "s"), [("120", 120), ("120s", 120), ("5min", 300), ("1h", 3600)])
def test_a_lead_without_a_unit_is_seconds(text: str, s: int) -> None:
    assert parse_lead_s(text) == s
    with pytest.raises(Refused):
        parse_lead_s(f"{text} fortnights")


# files --------------------------------------------------------------------------------------------


def test_event_files_wait_for_whole_records(tmp_path: Path) -> None:
    path = tmp_path / "events.out.tfevents.1"
    reader = EventFile(path, "val/")
    record = tfevents.scalars(1.0, 3, [("loss", 0.5), ("acc", 0.25)])
    picture = tfevents.markdown(1.0, 3, "text", "words")
    path.write_bytes(tfevents.version(0.0) + picture + record[:-2])
    assert list(reader.read()) == []
    with path.open("ab") as file:
        file.write(record[-2:] + record)
    both = Found({"val/loss": 0.5, "val/acc": 0.25}, 3)
    assert list(reader.read()) == [both, both]
    assert list(reader.read()) == []


def test_scalars_of_tensorflow_are_tensors() -> None:
    tensor = tfevents.message(
        8, tfevents.whole(1, tfevents.FLOAT), tfevents.message(5, tfevents.single(0.5))
    )
    value = tfevents.message(1, tfevents.text(1, "loss"), tensor)
    record = next(tfevents.read_records(tfevents.event(1.0, 4, tfevents.message(5, value))))
    assert tfevents.read_scalars(record) == (4, [("loss", 0.5)])


def test_the_same_tag_of_two_folders_is_two_metrics() -> None:
    names, root = Names(), Path("/x/logs")
    files = (
        root / "a" / "f",
        root / "validation" / "f",
        root / "a" / "sub" / "f",
        root / "b" / "f",
    )
    assert [names.prefix_of(file) for file in files] == ["", "validation/", "sub/", "b/"]


def test_tables_yield_each_row_once_also_when_they_are_written_again(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    reader = CsvFile(path, {(1, (("loss", 1.0),))})
    assert list(reader.read()) == []
    path.write_text("step,loss\n1,1.0\n2,0.5\n3,0.")
    assert list(reader.read()) == [Found({"loss": 0.5}, 2)]
    path.write_text("step,loss,acc\n1,1.0,\n2,0.5,\n3,0.25,0.5\n")
    assert list(reader.read()) == [Found({"loss": 0.25, "acc": 0.5}, 3)]
    path.write_text("name,size\nx,1\n")
    assert list(reader.read()) == []


def test_trainer_state_may_be_torn(tmp_path: Path) -> None:
    path = tmp_path / "trainer_state.json"
    reader = TrainerState(path, set())
    path.write_text('{"log_history": [{"loss": 1')
    assert list(reader.read()) == []
    path.write_text('{"log_history": [{"loss": 1.5, "epoch": 0.5, "step": 3}, 7]}')
    assert list(reader.read()) == [Found({"loss": 1.5, "epoch": 0.5}, 3)]
