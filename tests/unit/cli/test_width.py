"""Text that fits a terminal, also with wide characters and colours."""

from pathlib import Path

import pytest

from rampup.cli import output, width

WIDE = "精度の名前" * 12
RED = "\x1b[31mfailed\x1b[0m"


@pytest.mark.parametrize(
    ("text", "columns"),
    [("loss", 4), ("精度", 4), ("e\u0301", 1), (RED, 6), ("…", 1), ("", 0), ("a\u200db", 2)],
)
def test_columns_of_a_text(text: str, columns: int) -> None:
    assert width.measure(text) == columns


@pytest.mark.parametrize("text", ["x" * 60, WIDE, "a" + WIDE])
def test_what_is_cut_fits(text: str) -> None:
    for room in (5, 6, 20):
        for cut in (width.shorten(text, room), width.shorten_middle(text, room)):
            assert room - 1 <= width.measure(cut) <= room and "…" in cut
    assert width.shorten(text, 200) == width.shorten_middle(text, 200) == text


def test_the_middle_of_a_path_is_cut(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / ("folder" * 12) / "report.html"
    assert width.format_path(path, None) == str(path)
    cut = width.format_path(path, 40)
    assert len(cut) == 40 and cut.endswith("report.html") and cut.startswith("/")
    monkeypatch.chdir(tmp_path)
    assert width.format_path(path, 90) == str(path.relative_to(tmp_path))


@pytest.mark.parametrize("text", ["word " * 40, "  indented " + "x" * 200, WIDE, f"{RED}: {WIDE}"])
def test_what_is_folded_fits_and_loses_nothing(text: str) -> None:
    folded = width.fold(text, 40)
    assert max(width.measure(line) for line in folded.split("\n")) <= 40
    assert "".join(folded.split()) == "".join(text.split())


def test_a_short_line_stays_as_it_is() -> None:
    assert width.fold("two\n  lines  here ", 40) == "two\n  lines  here "


def test_a_table_fits() -> None:
    rows = [("abc123", WIDE, "x" * 60, RED), ("def456", "short", "1", "completed")]
    lines = output.table_lines(("id", "name", "point", "state"), rows, frozenset({2}), 80)
    assert max(map(width.measure, lines)) <= 80
    assert lines[1].startswith("abc123") and lines[1].endswith(RED)
    whole = output.table_lines(("id", "name", "point", "state"), rows)
    assert WIDE in whole[1] and "x" * 60 in whole[1]


def test_text_in_the_last_column_is_folded_below_itself(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(width, "columns", lambda stream: 60)
    about = "steps over which the rate rises, and what happens after them; " * 2
    output.table(("setting", "about"), [("warmup", about), ("lr", "rate")], fold_last=True)
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split() == ["setting", "about"]
    assert max(map(width.measure, lines)) <= 60 and lines[0].startswith("warmup   steps over")
    assert lines[-1] == "lr       rate"
    assert " ".join(" ".join(lines[:-1]).removeprefix("warmup").split()) == about.strip()
    output.table(("x" * 40, "about"), [("warmup", about)], fold_last=True)
    assert capsys.readouterr().out.splitlines()[1].endswith("…"), "no room to fold"


def test_parts_that_are_folded_stay_whole() -> None:
    parts = ["start 61%", "data 1%", "evaluation 2%", "saving 1%", "of 15.2 s"]
    assert width.join_folded("time: ", parts, None) == f"time: {'  '.join(parts)}"
    folded = width.join_folded("time: ", parts, 42).split("\n")
    assert folded == ["time: start 61%  data 1%  evaluation 2%", "  saving 1%  of 15.2 s"]


def test_values_that_fit_behind_a_label() -> None:
    parts = [f"metric_{index} 0.5" for index in range(10)]
    assert width.join_fitting("last: ", parts, None).count("metric") == 10
    fitting = width.join_fitting("last: ", parts, 80)
    assert width.measure(fitting) <= 80 and fitting.endswith("  …") and "metric_3" in fitting
