"""From runs to one HTML file that needs nothing else: `write_report`. Called by `rampup report`,
never inside a job.

read.py reads the runs into data.py's `RunData`; charts.py and class_charts.py decide what is drawn,
vega.py draws; sections.py and tables.py write the words, labels.py names the runs; page.py and
page.html hold it together. Nothing of a run is changed; the file appears whole or not at all.
"""

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct, to_builtins

from rampup.errors import Refused, UsageError
from rampup.report import vega
from rampup.report.charts import Chart, Mark, run_charts, thin_charts
from rampup.report.class_charts import evaluation_charts
from rampup.report.cluster_charts import cluster_charts
from rampup.report.data import RunData
from rampup.report.labels import label_runs
from rampup.report.page import fill_page
from rampup.report.read import read_run
from rampup.report.sections import page_body, page_title
from rampup.report.tables import StudyTable
from rampup.rundir.files import RunDir
from rampup.rundir.records import write_own_file, write_user_file

MOST_RUNS = 50


class Written(Struct, frozen=True):
    """What `write_report` has made."""

    file: Path
    size: int
    runs: list[RunData]
    pngs: list[Path]


def default_file(runs: Sequence[RunDir]) -> Path:
    return runs[0].report_file if len(runs) == 1 else Path.cwd() / runs[0].report_file.name


def write_report(
    run_dirs: Sequence[RunDir],
    out: Path,
    png_folder: Path | None = None,
    study_table: StudyTable | None = None,
    in_run: bool = False,
) -> Written:
    """Read the runs and write the page, and with `png_folder` each chart as a picture too. A page
    `in_run` takes the place of what has its name there; another one is where the user said."""
    refuse_without_altair()
    if len(run_dirs) > MOST_RUNS:
        words = f"{len(run_dirs)} runs are too many for one page"
        raise UsageError(words, f"give at most {MOST_RUNS}")
    runs = [read_run(run) for run in run_dirs]
    labels = label_runs(runs)
    charts, left = all_charts(runs, labels)
    body = page_body(runs, labels, charts, left, study_table)
    bundle = vega.script_bundle() if charts else ""
    page = fill_page(page_title(runs), body, page_data(labels, charts), bundle)
    content = page.encode("utf-8", "replace")
    write = write_own_file if in_run else write_user_file
    write(out, content)
    pngs = write_pngs(charts, png_folder) if png_folder is not None else []
    return Written(out, len(content), runs, pngs)


def missing_packages() -> list[str]:
    return [name for name in ("altair", "vl_convert") if importlib.util.find_spec(name) is None]


def refuse_without_altair() -> None:
    missing = missing_packages()
    if missing:
        raise Refused(f"a report needs {' and '.join(missing)}", "pip install 'rampup[report]'")


def all_charts(runs: Sequence[RunData], labels: Sequence[str]) -> tuple[list[Chart], list[str]]:
    """Return all charts as they are drawn, and the names of metrics that are too many to draw."""
    charts, left = run_charts(runs, labels)
    if len(runs) == 1:
        charts += evaluation_charts(runs[0].evaluation)
        charts += cluster_charts(runs[0])
    thin_charts(charts)
    return charts, left


def page_data(labels: list[str], charts: Sequence[Chart]) -> dict[str, Any]:
    """Return what page.js reads."""
    shared_marks: list[list[Mark]] = []  # most charts have the same
    for chart in charts:
        if chart.marks not in shared_marks:
            shared_marks.append(chart.marks)
    drawn = [
        {
            "spec": vega.specification(chart),
            "marks": shared_marks.index(chart.marks),
            "series": to_builtins(chart.series),
        }
        for chart in charts
    ]
    return {"runs": labels, "marks": to_builtins(shared_marks), "charts": drawn}


def write_pngs(charts: Sequence[Chart], folder: Path) -> list[Path]:
    """Write one picture per chart. Charts of equal names, as `a/b` and `a b`, get numbers."""
    found: list[Path] = []
    names: list[str] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for chart in charts:
            names.append(chart.name)
            count = names.count(chart.name)
            number = f"~{count}" if count > 1 else ""
            path = folder / f"{chart.name}{number}.png"
            path.write_bytes(vega.png(chart))
            found.append(path)
    except OSError as error:
        raise Refused(
            f"can't write into {folder}: {error.strerror}", "--png DIR, one that you can write"
        ) from None
    return found
