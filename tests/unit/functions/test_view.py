"""A cell of a notebook while its function runs: one output that renews itself."""

import json
from pathlib import Path

import pytest

from rampup.functions import view
from rampup.rundir.files import RunDir


class Cell:
    """The output of a cell, as it was at each moment."""

    def __init__(self) -> None:
        self.shown: list[str] = []

    def show(self, text: str) -> "Cell":
        self.shown.append(text)
        return self

    def __call__(self, newer: str) -> None:
        self.shown.append(newer)


def test_the_bar_and_the_last_metrics_renew_in_the_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view, "RENEW_S", 0.0)
    run, cell = RunDir(tmp_path / "20260101-000000-train-abcdef"), Cell()
    attempt = run.attempt(1)
    attempt.path.mkdir(parents=True)
    shown = view.NotebookView(run, cell.show)
    assert "pending" in cell.shown[-1]
    for step, loss in ((1, 0.5), (3, 0.25)):
        attempt.progress_file.write_text(
            json.dumps({"step": step, "steps": 4, "metrics": {"loss": loss}})
        )
        with attempt.rank_log(0).open("a") as log:
            log.write(f"line <{step}>\n")
        shown.renew()
        assert f"width:{25 * step}%" in cell.shown[-1] and f"{25 * step}%" in cell.shown[-1]
        assert f"step {step}/4" in cell.shown[-1] and f"loss {loss:g}" in cell.shown[-1]
        assert f"line &lt;{step}&gt;" in cell.shown[-1], "as text, not as HTML"
    assert "line &lt;1&gt;" in cell.shown[-1], "the lines before it stay"
