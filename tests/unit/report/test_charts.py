"""The charts of the report: which lines there are, what is left of many points, and how they look
on paper."""

import json
import os
import re
import time
from pathlib import Path
from typing import Any

import pytest
import vl_convert

from rampup.report import build, vega
from rampup.report.labels import label_runs
from rampup.report.read import read_run
from unit.report.report_pages import T0, Page, interrupted, make, report, use_short_bundle


@pytest.fixture(autouse=True)
def short_bundle(monkeypatch: pytest.MonkeyPatch) -> None:
    use_short_bundle(monkeypatch)


def series_of(page: Page, y_title: str) -> list[dict[str, Any]]:
    found = [
        chart["series"]
        for chart in page.data["charts"]
        if f"'title': '{y_title}'" in str(chart["spec"])
    ]
    return found[0]  # type: ignore[no-any-return]


def test_one_value_that_is_no_number_interrupts_the_line_and_is_no_divergence(
    tmp_path: Path,
) -> None:
    rows = [
        {"step": step, "loss": None if step == 150 else 1.0 / step, "t": T0}
        for step in range(1, 301)
    ]
    page = report(make(tmp_path, rows=rows))
    (loss,) = series_of(page, "loss")
    assert loss["ys"][149] is None and loss["ys"].count(None) == 1 and len(loss["ys"]) == 300
    assert (
        "loss was NaN or infinite at step 150 (1 of 300 rows)" in page.words
        and "diverged" not in page.words
    )
    assert (
        "Look at the data of that step." in page.words and "<code>look" not in page.source.lower()
    )
    for row in rows[199:]:
        row["loss"] = None
    page = report(make(tmp_path, "bbbbbb", rows=rows))
    assert (
        "loss became NaN or infinite at step 200: the training diverged. Try lr=0.0001"
        in page.words
    )
    assert "<code>lr=0.0001</code>" in page.source


def test_a_loss_that_is_never_a_number_is_no_chart(tmp_path: Path) -> None:
    page = report(
        make(
            tmp_path, rows=[{"step": step, "loss": None, "acc": step, "t": T0} for step in range(9)]
        )
    )
    assert (
        "loss" not in page.titles()
        and "acc" in page.titles()
        and "became NaN or infinite at step 0" in page.words
    )


def test_lines_of_a_thousand_gaps_stay_small(tmp_path: Path) -> None:
    rows = [{"step": step, "loss": None if step % 2 else 1.0, "t": T0} for step in range(20_000)]
    (loss,) = series_of(report(make(tmp_path, rows=rows)), "loss")
    assert len(loss["xs"]) < 3000 and None in loss["ys"]


def test_a_bare_name_beside_the_same_with_train_is_a_line_of_its_own(tmp_path: Path) -> None:
    rows = [
        {"step": step, "loss": 5.0, "train_loss": 1.0, "val_loss": 2.0, "t": T0}
        for step in range(9)
    ]
    both = make(tmp_path, rows=rows, train={"lr": 1})
    page = report(both)
    found = {line["kind"]: line["ys"][0] for line in series_of(page, "loss")}
    assert found == {"no prefix": 5, "train": 1, "val": 2}
    spec = str(page.data["charts"][0]["spec"])
    assert "['train', 'val', 'no prefix']" in spec, "the legend names it"
    bare = make(tmp_path, "bbbbbb", [{"step": 1, "loss": 3.0, "t": T0}], train={"lr": 2})
    kinds = [(line["run"], line["kind"]) for line in series_of(report(both, bare), "loss")]
    assert len(kinds) == len(set(kinds)) == 4 and ("lr=2", "no prefix") in kinds
    assert series_of(report(bare), "loss")[0]["kind"] == "train"


def test_twelve_runs_of_many_rows_stay_small_and_keep_their_spikes(tmp_path: Path) -> None:
    rows = [
        {"step": step, "train_loss": 1 / step, "val_loss": 2 / step, "t": T0}
        for step in range(1, 5001)
    ]
    rows[3210]["train_loss"] = 77.0
    runs = [
        make(tmp_path, f"aaaaa{letter}", rows, log="x" * 9999 + "\n") for letter in "abcdefghjkmn"
    ]
    page = report(*runs)
    assert len(page.source) + 900_000 < 2_000_000
    assert (
        sum(len(line["xs"]) for chart in page.data["charts"] for line in chart["series"]) <= 30_000
    )
    loss = page.data["charts"][0]["series"]
    assert len(loss) == 24 and all((77 in line["ys"]) == (line["kind"] == "train") for line in loss)


def test_a_hundred_thousand_rows_take_about_a_second(tmp_path: Path) -> None:
    """A tenth of what the benchmarks measure."""
    rows = [{"step": step, "train_loss": 1.0, "lr": 0.1, "t": T0 + step} for step in range(100_000)]
    run = make(tmp_path, rows=rows)
    began = time.process_time()
    page = report(run)
    assert time.process_time() - began < 3
    assert len(page.data["charts"][0]["series"][0]["xs"]) <= 2000


def test_too_many_metrics_are_named_not_drawn(tmp_path: Path) -> None:
    page = report(make(tmp_path, rows=[{"step": 1, "t": T0, **{f"m{n}": n for n in range(30)}}]))
    assert "Not drawn" in page.words and "m29" in page.words


def test_fifty_runs_have_fifty_colours(tmp_path: Path) -> None:
    assert len({vega.run_colour(index) for index in range(build.MOST_RUNS)}) == build.MOST_RUNS
    assert [vega.run_colour(index) for index in range(12)] == list(vega.COLOURS)
    page = report(*(make(tmp_path, f"aaaa{n}", train={"lr": n}) for n in range(10, 24)))
    assert (
        len(set(re.findall("background:(#......)", page.source))) == 14
        and "shades of the first" in page.words
    )
    assert page.source.count(vega.run_colour(13)) > 1, "in the legend and in the charts"


def test_charts_for_papers(tmp_path: Path) -> None:
    rows = [{"step": 1, "a/b": 1, "a b": 2, "../x": 3, "t": T0}]
    written = build.write_report(
        [make(tmp_path, rows=rows)], tmp_path / "out.html", tmp_path / "pictures"
    )
    names = [path.name for path in written.pngs]
    assert names[:4] == ["a-b.png", "a-b~2.png", "x.png", "phases.png"] and sorted(names) == sorted(
        os.listdir(tmp_path / "pictures")
    )
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in written.pngs)


def test_every_chart_is_valid_vega_lite(tmp_path: Path) -> None:
    """altair checks what the report itself does not take the time to."""
    import altair

    runs = [
        make(tmp_path, f"aaaaa{letter}", train={"lr": lr}) for letter, lr in (("a", 1), ("b", 2))
    ]
    runs.append(interrupted(tmp_path, "aaaaac"))
    for runs_read in ([read_run(runs[0])], [read_run(runs[2])], [read_run(run) for run in runs]):
        drawn, _ = build.all_charts(runs_read, label_runs(runs_read))
        assert {chart.section for chart in drawn} == {"curves", "throughput", "phases", "machine"}
        for chart in drawn:
            for for_paper in (False, True):
                # raises what is wrong
                altair.Chart.from_dict(vega.specification(chart, for_paper))


def test_the_legend_of_several_runs_shows_strokes(tmp_path: Path) -> None:
    """Solid and dashed, not two equal dots."""
    runs = [read_run(make(tmp_path, run_id)) for run_id in ("aaaaaa", "bbbbbb")]
    drawn, _ = build.all_charts(runs, ["a", "b"])
    spec = {**vega.specification(drawn[0]), "datasets": {"points": [], "marks": []}}
    legends = vl_convert.vegalite_to_vega(json.dumps(spec))["legends"]
    (strokes,) = (each for each in legends if "strokeDash" in each)
    assert strokes["symbolType"] == "stroke"
    assert "transparent" not in json.dumps(strokes), "a line that is seen"
