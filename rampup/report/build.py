"""From runs to one HTML file that needs nothing else: `write_report`. Called by `rampup report`,
never inside a job.

collect.py reads the runs, charts.py draws, sections.py writes the words, template.py holds the
page, bundle.py what draws the charts in a browser. Nothing of a run is changed; the file appears
whole or not at all.
"""

import importlib.util
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct, to_builtins

from rampup.errors import Refused, UsageError
from rampup.report import bundle, charts, sections, template
from rampup.report.collect import collect
from rampup.report.points import Points, section
from rampup.report.restarts import Mark
from rampup.report.story import Story
from rampup.rundir.files import RunDir
from rampup.rundir.records import write_user_file

MOST_RUNS = 50


class Written(Struct, frozen=True):
    """What was made."""

    file: Path
    size: int
    stories: list[Story]
    pngs: list[Path]


def default_file(runs: Sequence[RunDir]) -> Path:
    return runs[0].report_file if len(runs) == 1 else Path.cwd() / runs[0].report_file.name


def write_report(
    runs: Sequence[RunDir], out: Path, png_folder: Path | None = None, points: Points | None = None
) -> Written:
    """Read the runs and write the page, and with `png_folder` each chart as a picture too."""
    refuse_without_altair()
    if len(runs) > MOST_RUNS:
        raise UsageError(f"{len(runs)} runs are too many for one page", f"give at most {MOST_RUNS}")
    stories = [collect(run) for run in runs]
    labels = sections.labels_of(stories)
    drawn, left = charts.charts_of(stories, labels)
    page = page_of(stories, labels, drawn, left, points).encode("utf-8", "replace")
    write_user_file(out, page)
    pngs = write_pngs(drawn, png_folder) if png_folder is not None else []
    return Written(out, len(page), stories, pngs)


def missing_packages() -> list[str]:
    return [name for name in ("altair", "vl_convert") if importlib.util.find_spec(name) is None]


def refuse_without_altair() -> None:
    missing = missing_packages()
    if missing:
        raise Refused(f"a report needs {' and '.join(missing)}", "pip install 'rampup[report]'")


def page_of(
    stories: Sequence[Story],
    labels: list[str],
    drawn: list[charts.Chart],
    left: list[str],
    points: Points | None = None,
) -> str:
    body = sections.body(stories, labels, drawn, left, section(points) if points else "")
    marks: list[list[Mark]] = []
    marks += (chart.marks for chart in drawn if chart.marks not in marks)  # most charts share them
    data = {
        "runs": labels,
        "marks": to_builtins(marks),
        "charts": [
            {
                "spec": charts.specification(chart),
                "marks": marks.index(chart.marks),
                "series": [
                    {"run": it.run, "kind": it.kind, "xs": it.xs, "ys": it.ys}
                    for it in chart.series
                ],
            }
            for chart in drawn
        ],
    }
    return template.fill(
        sections.title_of(stories), body, data, bundle.script_bundle() if drawn else ""
    )


def write_pngs(drawn: Sequence[charts.Chart], folder: Path) -> list[Path]:
    """Charts of equal names, as `a/b` and `a b`, get numbers."""
    found: list[Path] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for chart in drawn:
            same = sum(
                1
                for path in found
                if path.stem.rpartition("~")[0] == chart.name or path.stem == chart.name
            )
            path = folder / f"{chart.name}{f'~{same + 1}' if same else ''}.png"
            path.write_bytes(charts.png(chart))
            found.append(path)
    except OSError as error:
        raise Refused(
            f"can't write into {folder}: {error.strerror}", "--png DIR, one that you can write"
        ) from None
    return found
