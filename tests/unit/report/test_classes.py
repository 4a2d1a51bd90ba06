"""A report of a classifier: its classes, samples and weights; and a page that stands whatever the
file says."""

import base64
import json
from pathlib import Path
from typing import Any

import altair
import numpy as np
import pytest

from rampup.core.png import write_png
from rampup.report import build, class_charts, vega
from rampup.report.read import read_run
from rampup.rundir.damage import find_damage
from unit.report.report_pages import Page, make, use_short_bundle

PICTURE = base64.b64encode(write_png(np.zeros((4, 4, 3), np.uint8))).decode()


def evaluation(**changes: Any) -> dict[str, Any]:
    found = {
        "step": 40,
        "epoch": 4,
        "classes": ["cat", "dog<b>"],
        "confusion": [[8, 2], [1, 9]],
        "scores": [[8 / 9, 0.8, 0.842105, 10], [9 / 11, 0.9, 0.857143, 10]],
        "curves": [[0.5, 1.0], [1.0, 0.3], [0.5, 0.9], [1.0, 0.4]],
        "samples": PICTURE,
        "weights": [
            {"name": "0.weight", "counts": [50, 100, 50], "low": -1.0, "high": 1.0},
            {"name": "0.bias", "counts": [1, 1], "low": -1.0, "high": 1.0},
        ],
        "graph": [
            {"name": "x", "kind": "placeholder", "inputs": []},
            {"name": "a<i>", "kind": "Linear", "inputs": ["x"]},
            {"name": "add", "kind": "add", "inputs": ["a<i>", "x", "unheard of"]},
        ],
        "model": ["0: Linear(<2>) 6 parameters", "in all: 6 parameters"],
    }
    return found | changes


def page(folder: Path, monkeypatch: pytest.MonkeyPatch, record: object, runs: int = 1) -> Page:
    use_short_bundle(monkeypatch)
    made = [make(folder, run_id) for run_id in ("aaaaaa", "bbbbbb")[:runs]]
    for run in made:
        run.attempt(1).evaluation_file.write_text(
            record if isinstance(record, str) else json.dumps(record)
        )
    build.write_report(made, folder / "page.html")
    return Page(folder / "page.html")


def test_classes_samples_and_model_are_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = page(tmp_path, monkeypatch, evaluation())
    assert "The last validation, at step 40, over all ranks." in found.words
    assert (
        "cat0.88890.80000.842110" in found.words.replace("\n", "") and "dog<b>0.8182" in found.words
    )
    assert "mean, sum0.85350.85000.849620" in found.words.replace("\n", "")
    assert f"<img alt='samples' src='data:image/png;base64,{PICTURE}'>" in found.source
    assert "0: Linear(<2>) 6 parameters" in found.words
    drawing = found.source.partition("aria-label='graph'")[2].partition("</svg>")[0]
    assert drawing.count("<circle") == 3 and "a&lt;i&gt; <tspan" in drawing
    assert drawing.count("<path") == 3, "x to a, a to add, and the arc from x to add"
    assert drawing.count("C90,") == 2, "two of them are straight"
    series = [chart["series"] for chart in found.data["charts"][-3:]]
    assert [(it["run"], it["kind"], it["xs"], it["ys"]) for it in series[0]] == [
        ("cat", "cat", [8], [0.8]),
        ("cat", "dog<b>", [2], [0.2]),
        ("dog<b>", "cat", [1], [0.1]),
        ("dog<b>", "dog<b>", [9], [0.9]),
    ]
    assert next((it["run"], it["xs"], it["ys"]) for it in series[1]) == ("cat", [1, 0.3], [0.5, 1])
    assert [it["run"] for it in series[2]] == ["0.weight"] and series[2][0]["ys"] == [
        0.25,
        0.5,
        0.25,
    ]


def test_they_are_valid_and_can_be_drawn(tmp_path: Path) -> None:
    run = make(tmp_path)
    run.attempt(1).evaluation_file.write_text(json.dumps(evaluation()))
    drawn, _ = build.all_charts([read_run(run)], ["mnist"])
    told = [chart for chart in drawn if chart.section in ("classes", "model")]
    assert [chart.name for chart in told] == ["confusion", "pr-curves", "weights"]
    for chart in told:
        altair.Chart.from_dict(vega.specification(chart))
        assert vega.png(chart).startswith(b"\x89PNG")


def test_the_last_attempt_that_was_validated_counts(tmp_path: Path) -> None:
    run = make(tmp_path)
    run.attempt(1).evaluation_file.write_text(json.dumps(evaluation()))
    run.attempt(2).path.mkdir()
    assert read_run(run).evaluation["step"] == 40
    run.attempt(2).evaluation_file.write_text(json.dumps(evaluation(step=60)))
    assert read_run(run).evaluation["step"] == 60


def test_several_runs_are_compared_by_their_curves_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = page(tmp_path, monkeypatch, evaluation(), runs=2)
    assert "The last validation" not in found.words and "img" not in found.tags


@pytest.mark.parametrize(
    "record",
    [
        "{torn",
        "[]",
        {},
        evaluation(classes=["cat"], samples="'><script>alert(1)</script>"),
        evaluation(
            classes=["cat", "cat"], weights=[{"name": 7, "counts": "many"}, {}, {"counts": [None]}]
        ),
        evaluation(
            confusion=[[1, 2], [3]], scores=[[1]], curves=[["x"]], model="words", step="first"
        ),
        evaluation(scores=[], curves=[], samples=PICTURE + "A" * 700_000),
        evaluation(
            weights=[{"name": "w", "counts": [200.0, 1e999], "low": 0, "high": 1}], model=[7]
        ),
        evaluation(weights=[{"name": "w", "counts": [200], "low": 1, "high": 0}]),
    ],
)
def test_a_page_stands_whatever_the_file_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record: object
) -> None:
    found = page(tmp_path, monkeypatch, record)
    assert found.tags.count("script") == 3 and "alert(1)" not in found.source
    assert "img" not in found.tags or PICTURE in found.source
    assert "can't be told" not in found.words


def test_damage_is_named(tmp_path: Path) -> None:
    run = make(tmp_path)
    run.control_file.touch()
    assert find_damage(run) == [], "a run need not have been validated"
    run.attempt(1).evaluation_file.write_text(json.dumps(evaluation(confusion="much")))
    assert find_damage(run) == ["attempts/1/evaluation.json: confusion: foreign and left out"]


def test_very_many_classes_are_told_in_a_table(tmp_path: Path) -> None:
    names = [f"c{index}" for index in range(300)]
    many = {"classes": names, "confusion": [[0] * 300] * 300, "scores": [[0.5, 0.5, 0.5, 1]] * 300}
    assert list(class_charts.confusion_chart(many)) == []
    assert class_charts.class_table(many).count("<tr>") == 2 + class_charts.MOST_ROWS
