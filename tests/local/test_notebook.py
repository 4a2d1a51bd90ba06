"""The notebook in examples/ runs as it stands, and shows what its page promises."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "examples").rglob("*.ipynb"))


def outputs_of(cell: Any, kind: str) -> str:
    return "".join(out.get("data", {}).get(kind, "") for out in cell.outputs)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_the_notebook_runs_and_shows_its_curves(
    cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes about ten seconds: a kernel, matplotlib, and twice two ranks with torch."""
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    (file,) = NOTEBOOKS
    for name, value in cli.env.items():
        monkeypatch.setenv(name, value)
    for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_DATA_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    notebook = nbformat.read(file, as_version=4)
    client = nbclient.NotebookClient(notebook, timeout=180, kernel_name="python3")
    client.km = client.create_kernel_manager()
    client.km.kernel_spec.argv[0] = sys.executable
    client.execute(cwd=str(cli.cwd))
    launched, plotted, again = [cell for cell in notebook.cells if cell.cell_type == "code"][2:]
    shown = outputs_of(launched, "text/html")
    assert "completed" in shown and "val_accuracy" in shown and "<polyline" in shown
    assert len(launched.outputs) <= 2, "the cell renews one output"
    assert "<polyline" in outputs_of(again, "text/html"), "a finished job shows its curves"
    assert any(out.get("name") == "stdout" for out in again.outputs)
    assert outputs_of(plotted, "image/png"), "the plot"
    rows = cli.json("list")
    assert sorted(row["name"] for row in rows) == ["again", "train"]
    assert {row["state"] for row in rows} == {"completed"}
    assert not list(Path(os.environ["JUPYTER_RUNTIME_DIR"]).glob("kernel-*.json"))
