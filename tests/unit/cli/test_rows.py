"""The lines of rank 0 as a table: aligned, for people, and never wider than the terminal."""

import io
import json

import pytest

from rampup.cli import output, width
from rampup.cli.rows import (
    EpochRows,
    RowTable,
    clock_time,
    format_epoch,
    is_within_epoch,
    parse_row,
)

LINE = (
    "epoch={}/30 step=550 train_loss=0.289 val_accuracy={} val_loss=0.124 val_precision=0.96 "
    "lr=0.001 samples_s=92600 epoch_s=0.7836 eta_s=61"
)


def lines_of(table: RowTable, line: str, room: int) -> list[str]:
    row = parse_row(line)
    assert row is not None
    return table.format(row, table.note(row), room, io.StringIO())


@pytest.mark.parametrize(
    "line",
    ["hello", "epoch 3 of 4", "epoch=3", "step=three loss=0.5", "steps=3 loss=1", "step=1 is done"],
)
def test_other_lines_are_not_rows(line: str) -> None:
    assert parse_row(line) is None


def test_a_row_is_aligned_below_a_header_for_people() -> None:
    table = RowTable("val_accuracy", "auto")
    head, first = lines_of(table, LINE.format(1, 0.9658), 140)
    (second,) = lines_of(table, LINE.format(10, 0.9), 140)
    assert head.split()[0] == "epoch" and head.split()[-3:] == ["samples/s", "took", "left"]
    assert first.split()[-4:] == ["92,600", "0.8", "s", "1:01"]
    assert "0.9658*" in first and "*" not in second, "the best is marked"
    assert len(head) == len(first) == len(second)


def test_columns_have_room_for_what_is_to_come() -> None:
    table = RowTable(None, None)
    first = lines_of(table, "epoch=1/200 step=1 loss=0.5", 80)
    later = lines_of(table, "epoch=200/200 step=200 loss=3.286e-05", 80)
    assert len({len(line) for line in (*first, *later)}) == 1, "all rows stay aligned"


@pytest.mark.parametrize("room", [40, 80, 100])
def test_columns_that_matter_less_give_way(room: int) -> None:
    table = RowTable("val_accuracy", "auto")
    lines = lines_of(table, LINE.format(1, 0.9658), room)
    assert max(map(width.measure, lines)) <= room
    assert {"epoch", "val_accuracy"} <= set(lines[0].split())


def test_long_and_wide_names_fit() -> None:
    table = RowTable(None, None)
    names = ["recall_" + "x" * 53 + str(index) for index in range(3)] + ["精度の名前" * 12]
    line = "step=5 " + " ".join(f"{name}=0.123" for name in names)
    for room in (30, 80, 140):
        assert max(map(width.measure, lines_of(table, line, room))) <= room


def test_the_lowest_loss_is_the_best_where_nobody_chose() -> None:
    table = RowTable(None, None)
    marks = [
        "*" in lines_of(table, f"step=1 loss={loss}", 80)[-1] for loss in (3, 2, "nan", 2.5, 1)
    ]
    assert marks == [True, True, False, False, True]


def test_new_columns_get_a_new_header_once() -> None:
    table = RowTable(None, None)
    counts = [
        len(lines_of(table, line, 80))
        for line in ("step=1 loss=1", "step=2 val_loss=1", "step=3 loss=1", "step=4 val_loss=2")
    ]
    assert counts == [2, 2, 1, 1]


def test_rows_within_an_epoch() -> None:
    within = parse_row("epoch=1/3 step=70 train_loss=0.4624 samples_s=375.9 eta_s=222")
    cut = parse_row("epoch=1/3 step=70 train_loss=0.4624 val_loss=0.2 samples_s=375.9 eta_s=0")
    whole = parse_row("epoch=1/3 step=550 train_loss=0.289 samples_s=1293 epoch_s=42.6 eta_s=86")
    found = [is_within_epoch(row) for row in (within, cut, whole) if row is not None]
    assert found == [True, False, False]


def test_epochs_of_your_own_loop_come_from_its_metrics() -> None:
    """The last row of an epoch, when the next one begins; lines may arrive in parts."""
    rows = EpochRows()

    def line(step: int, epoch: float | None) -> bytes:
        return json.dumps({"step": step, "loss": step / 8, "epoch": epoch, "t": 1.0}).encode()

    assert rows.add(line(1, 1) + b"\n" + line(2, 1) + b"\n" + line(3, 2)) == []
    (ended,) = rows.add(b"\n" + b"torn\n[]\n" + line(4, None) + b"\n" + line(5, 2.5) + b"\n")
    assert format_epoch(ended, "9") == {"epoch": "1/9", "loss": "0.25"}
    assert rows.last is not None and rows.last["step"] == 3, "an epoch is a whole number"
    begun = b"".join(line(step, step // 100 + 3) + b"\n" for step in range(300))
    assert [row["step"] for row in rows.add(begun)] == [3, 99, 199]
    assert rows.add(b"".join(line(step, 5) + b"\n" for step in range(300, 400))) == []
    assert rows.last["step"] == 399


def test_times() -> None:
    assert [clock_time(seconds) for seconds in (0, 61, 3723)] == ["0:00", "1:01", "1:02:03"]


def test_the_best_is_bold_where_there_are_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "has_colours", lambda stream: True)
    table = RowTable("val_accuracy", "auto")
    _, first = lines_of(table, LINE.format(1, 0.9658), 80)
    assert "\x1b[1m     0.9658*\x1b[0m" in first and width.measure(first) <= 80
