"""The notebooks in examples/ run as they stand, and show what their page promises."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOKS = {path.stem: path for path in (ROOT / "examples").rglob("*.ipynb")}


def outputs_of(cell: Any, kind: str) -> str:
    return "".join(out.get("data", {}).get(kind, "") for out in cell.outputs)


@pytest.fixture
def execute(cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """Run a notebook in a kernel of its own, and return it with its outputs."""
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    for name, value in cli.env.items():
        monkeypatch.setenv(name, value)
    for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_DATA_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))

    def run(name: str) -> Any:
        notebook = nbformat.read(NOTEBOOKS[name], as_version=4)
        client = nbclient.NotebookClient(notebook, timeout=180, kernel_name="python3")
        client.km = client.create_kernel_manager()
        client.km.kernel_spec.argv[0] = sys.executable
        client.execute(cwd=str(cli.cwd))
        assert not list(Path(os.environ["JUPYTER_RUNTIME_DIR"]).glob("kernel-*.json"))
        return [cell for cell in notebook.cells if cell.cell_type == "code"]

    return run


def test_each_notebook_is_on_its_page() -> None:
    page = (ROOT / "examples" / "notebook" / "README.md").read_text()
    assert all(f"({path.name})" in page for path in NOTEBOOKS.values())
    assert len(NOTEBOOKS) == 2


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_the_notebook_runs_and_shows_its_curves(cli: Any, execute: Callable[[str], Any]) -> None:
    """It takes about ten seconds: a kernel, matplotlib, and twice two ranks with torch."""
    launched, plotted, again = execute("train-on-two-ranks")[2:]
    shown = outputs_of(launched, "text/html")
    assert "completed" in shown and "val_accuracy" in shown and "<polyline" in shown
    assert len(launched.outputs) <= 2, "the cell renews one output"
    assert "<polyline" in outputs_of(again, "text/html"), "a finished job shows its curves"
    assert any(out.get("name") == "stdout" for out in again.outputs)
    assert outputs_of(plotted, "image/png"), "the plot"
    rows = cli.json("list")
    assert sorted(row["name"] for row in rows) == ["again", "train"]
    assert {row["state"] for row in rows} == {"completed"}


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_the_notebook_that_clusters_jets(cli: Any, execute: Callable[[str], Any]) -> None:
    """It takes about ten seconds: a kernel, matplotlib, and two ranks that train eight epochs."""
    _, jets, *_, launched, accuracy, scatter = execute("cluster-jets")
    assert all(outputs_of(cell, "image/png") for cell in (jets, accuracy, scatter))
    assert "completed" in outputs_of(launched, "text/html")
    (row,) = cli.json("list")
    assert (row["name"], row["state"]) == ("train", "completed")
    found = [each["val_accuracy"] for each in cli.json("show", "--history")]
    assert len(found) == 8 and found[-1] > 0.58, "drawing by lot would match 0.35"
