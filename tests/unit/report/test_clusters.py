"""A report of clusters: samples as points, clusters against classes, the accuracy with the switch
marked; and a page that stands whatever the file says."""

import json
from pathlib import Path
from typing import Any

import altair
import pytest

from rampup.report import build, vega
from rampup.report.cluster_charts import cluster_charts
from rampup.report.read import read_run
from rampup.rundir.damage import find_damage
from unit.report.report_pages import Page, epochs, interrupted, make, use_short_bundle

CLUSTERS: dict[str, Any] = {
    "classes": ["W", "Z", "top<b>"],
    "names": ["cluster 0 (top)", "cluster 1 (W)", "cluster 2 (Z)", "cluster 3 (no class)"],
    "class_of": [2, 0, 1, -1],
    "pairs": [[0, 8, 1, 1], [1, 2, 6, 0], [9, 0, 0, 1]],
    "points": [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]],
    "truth": [0, 2, 1],
    "assigned": [1, 0, 3],
    "axes": ["first", "second"],
    "metric": "val_accuracy",
    "steps_per_epoch": 10,
}
SWITCHES = [{"step": 20, "label": "full loss"}]


def record(**changes: Any) -> dict[str, Any]:
    clusters = {**CLUSTERS, **changes}
    return {"step": 40, "epoch": 4, "clusters": clusters, "switches": SWITCHES}


def page(folder: Path, monkeypatch: pytest.MonkeyPatch, evaluation: Any) -> Page:
    use_short_bundle(monkeypatch)
    run = make(folder, rows=epochs())
    run.attempt(1).evaluation_file.write_text(json.dumps(evaluation))
    build.write_report([run], folder / "page.html")
    return Page(folder / "page.html")


def drawn(found: Page, title: str) -> dict[str, Any]:
    place = found.titles().index(title)
    chart: dict[str, Any] = found.data["charts"][place]
    return chart


def test_points_stand_side_by_side_in_the_same_colours(tmp_path: Path) -> None:
    run = make(tmp_path)
    run.attempt(1).evaluation_file.write_text(json.dumps(record()))
    truth, clusters, pairs, accuracy = cluster_charts(read_run(run))
    assert [(it.run, it.xs, it.ys) for it in truth.series] == [
        ("W", [0.0], [1.0]),
        ("Z", [4.0], [5.0]),
        ("top<b>", [2.0], [3.0]),
    ]
    assert clusters.runs == [CLUSTERS["names"][each] for each in (1, 2, 0, 3)]
    assert clusters.colours[:3] == truth.colours, "W, Z and top look the same on both"
    assert clusters.colours[3] not in truth.colours
    points = {line.run: line.xs for line in clusters.series if line.xs}
    assert points == {"cluster 1 (W)": [0.0], "cluster 0 (top)": [2.0], CLUSTERS["names"][3]: [4.0]}
    assert pairs.columns == clusters.runs and pairs.runs == CLUSTERS["classes"]
    shown = {(it.run, it.kind): (it.xs, it.ys) for it in pairs.series}
    assert shown["Z", "cluster 2 (Z)"] == ([6], [6 / 9])
    assert accuracy.series[0].xs == [1, 2, 3, 4] and accuracy.series[0].ys[0] == 0.5
    assert [(mark.x, mark.label) for mark in accuracy.marks] == [(2.0, "full loss")]


def test_the_page_shows_them_and_marks_the_switch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = page(tmp_path, monkeypatch, record())
    assert "a cluster has the colour of the class" in found.words
    assert "A dashed line with a word marks where the training changed." in found.words
    assert "where a later attempt resumed" not in found.words
    loss = drawn(found, "loss")
    (mark,) = found.data["marks"][loss["marks"]]
    assert (mark["x"], mark["label"], mark["words"]) == (20, "full loss", "from step 20: full loss")
    titles = ["samples by class", "samples by cluster", "classes and clusters"]
    assert set(titles) < set(found.titles()) and "clustering accuracy" in found.titles()


def test_they_are_valid_and_can_be_drawn(tmp_path: Path) -> None:
    run = make(tmp_path)
    run.attempt(1).evaluation_file.write_text(json.dumps(record()))
    for chart in cluster_charts(read_run(run)):
        spec = vega.specification(chart)
        altair.Chart.from_dict({**spec, "data": {"name": "points"}}, validate=True)
        assert vega.png(chart).startswith(b"\x89PNG")


def test_the_switch_keeps_its_word_beside_a_later_attempt(tmp_path: Path) -> None:
    run = interrupted(tmp_path)
    run.attempt(3).evaluation_file.write_text(json.dumps(record()))
    charts, _ = build.all_charts([read_run(run)], ["mnist"])
    marks = next(chart.marks for chart in charts if chart.title == "loss")
    # attempt 2 began at the same step, so its number would be under the word
    assert [(mark.x, mark.label) for mark in marks] == [(20, ""), (30, "3"), (20, "full loss")]


@pytest.mark.parametrize(
    ("changes", "left"),
    [
        ({"points": []}, 2),
        ({"points": [[0.0, 1.0]]}, 2),
        ({"points": [[0.0], [1.0], [2.0]]}, 2),
        ({"truth": [0, 1]}, 2),
        ({"truth": ["W", "Z", "W"]}, 2),
        ({"truth": [0, 17, -3]}, 4),
        ({"classes": ["W", "W", "top"]}, 2),
        ({"axes": "first"}, 2),
        ({"pairs": [[1, 2]]}, 3),
        ({"metric": "unheard of"}, 3),
        ({"steps_per_epoch": 0}, 3),
        ({"names": ["a"]}, 0),
        ({"names": ["a", "a", "b", "c"]}, 0),
        ({"class_of": ["x", 0, 1, 2]}, 0),
        ({"class_of": [7, 7, 7, 7]}, 4),
    ],
)
def test_a_damaged_file_gives_less(tmp_path: Path, changes: dict[str, Any], left: int) -> None:
    run = make(tmp_path)
    run.attempt(1).evaluation_file.write_text(json.dumps(record(**changes)))
    charts = cluster_charts(read_run(run))
    assert len(charts) == left
    for chart in charts:
        vega.specification(chart)


@pytest.mark.parametrize(
    "switches", [None, "x", [{"step": "20", "label": "x"}], [{"step": 20}], [3], []]
)
def test_damaged_switches_mark_nothing(tmp_path: Path, switches: Any) -> None:
    run = make(tmp_path)
    run.attempt(1).evaluation_file.write_text(json.dumps({**record(), "switches": switches}))
    charts, _ = build.all_charts([read_run(run)], ["mnist"])
    assert not any(chart.marks for chart in charts)


def test_a_foreign_value_is_named(tmp_path: Path) -> None:
    run = make(tmp_path)
    run.attempt(1).evaluation_file.write_text(json.dumps(record(points="<script>")))
    assert any("clusters.points" in words for words in find_damage(run))
