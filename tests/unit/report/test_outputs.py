"""A report of a model that predicts numbers: each against what is true, and a page that stands
whatever the file says."""

from pathlib import Path
from typing import Any

import altair
import pytest

from rampup.report import class_charts, vega
from unit.report.test_classes import page

TRUTH = [[-1.0, 0.0, 1.0], [0.5, 0.5, 0.25]]
PREDICTED = [[-0.8, 0.1, 0.9], [0.4, 0.6, 0.2]]


def evaluation(**changes: Any) -> dict[str, Any]:
    outputs = {"outputs": ["sigma_8", "n/s <b>"], "truth": TRUTH, "predicted": PREDICTED}
    return {"step": 40, "epoch": 4, **outputs, **changes}


def test_each_number_has_a_chart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = page(tmp_path, monkeypatch, evaluation())
    assert "Predictions" in found.words
    assert "Validation samples of rank 0" in found.words
    charts = [chart for chart in found.data["charts"] if "true " in str(chart["spec"])]
    assert len(charts) == 2
    assert [line["xs"] for chart in charts for line in chart["series"]] == TRUTH
    assert [line["ys"] for chart in charts for line in chart["series"]] == PREDICTED


def test_the_specification_is_vega_lite_and_becomes_a_picture() -> None:
    one, other = class_charts.output_charts(evaluation())
    spec = vega.specification(one)
    altair.Chart.from_dict({**spec, "data": {"name": "points"}}, validate=True)
    assert vega.png(one).startswith(b"\x89PNG")
    assert one.name == "predicted-sigma_8"
    assert other.name == "predicted-n-s--b-"


@pytest.mark.parametrize(
    "changes",
    [
        {"outputs": []},
        {"outputs": "sigma_8"},
        {"truth": []},
        {"truth": [[], []]},
        {"predicted": None},
        {"truth": [["x"]], "predicted": [["y"]]},
        {"outputs": [1, 2]},
    ],
)
def test_a_damaged_file_gives_less(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any]
) -> None:
    found = page(tmp_path, monkeypatch, evaluation(**changes))
    assert "Predictions" not in found.words


def test_columns_of_different_length_are_cut() -> None:
    (chart, _) = class_charts.output_charts(evaluation(predicted=[[0.1], [0.2]]))
    assert chart.series[0].xs == [-1.0]
    assert chart.series[0].ys == [0.1]
