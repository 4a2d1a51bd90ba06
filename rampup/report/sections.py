"""The body of a report, as HTML: outcome, notes, the places of the charts, and the details of each
run.

Pure: from `RunData` and charts to text. Everything that comes from a run passes `escape`. Called by
build.py.
"""

import re
import time
from collections.abc import Sequence
from typing import Any

from rampup.core.finding import Finding
from rampup.diagnose.why.clues import Clue
from rampup.report import class_charts
from rampup.report.charts import MOST_NODES, Chart
from rampup.report.data import NOT_MEASURED, RunData, as_table, finite
from rampup.report.labels import LABEL_SETTINGS, all_settings, differing_settings
from rampup.report.page import (
    cut,
    escape,
    format_duration,
    format_number,
    format_time,
    format_value,
    html_table,
)
from rampup.report.tables import (
    StudyTable,
    attempts_table,
    effective_time,
    environment,
    settings_tables,
    study_section,
)
from rampup.report.vega import COLOURS, run_colour
from rampup.rundir.records import Record
from rampup.runs.summary import describe_reading

SETTING = re.compile(r"--[\w-]+ [\w.]+|[\w.]+=[\w.]+(?: [\w.]+=[\w.]+)*|RAMPUP_\w+")
NOT_OF_ALL = ("samples/s", "epoch takes", "best")
"""Columns that are left out where no run has them: your own loop may log no metric that counts."""
KILLED = "estimated from the start of training: rank 0 was killed before it wrote its phases"
SOME_KILLED = (
    "as measured by rank 0; for an attempt that was killed, only the start of training is known"
)
MARKS = "A dashed line marks where a later attempt resumed; its number is above it."
MARKS_OF_MANY = "A dashed line marks where a later attempt of the run of that colour resumed."
OUTPUTS = (
    "Validation samples of rank 0, as the last validation saw them; on the line, both are equal."
)
CLUSTERS = (
    "The last validation. Points are samples of rank 0; a cluster has the colour of the class that it "
    "was matched to, one to one. The table counts all samples of all ranks."
)
SWITCHES = "A dashed line with a word marks where the training changed."
CHART_SECTIONS = {
    "curves": "Curves",
    "throughput": "Throughput",
    "phases": "Where the time went",
    "machine": "CPU and memory",
}
"""The title of each section of charts. One without a chart is left out."""


def page_title(runs: Sequence[RunData]) -> str:
    return f"{runs[0].name} {runs[0].run.id}" if len(runs) == 1 else title_of_several(runs)


def title_of_several(runs: Sequence[RunData]) -> str:
    """Say how many they are, and which study they belong to."""
    studies = {str(data.identity.get("study") or "") for data in runs}
    study = f"study {studies.pop()}: " if len(studies) == 1 and "" not in studies else ""
    return f"{study}{len(runs)} runs"


def page_body(
    runs: Sequence[RunData],
    labels: Sequence[str],
    charts: Sequence[Chart],
    left: Sequence[str],
    study_table: StudyTable | None = None,
) -> str:
    """Return the whole body. `left` are metrics that are not drawn, `study_table` lists the study
    of which these runs are a part."""
    chart_sections = {key: chart_section(key, charts, runs, left) for key in CHART_SECTIONS}
    if len(runs) == 1:
        parts = one_run(runs[0], labels, charts, chart_sections)
    else:
        parts = several_runs(runs, labels, chart_sections, study_table)
    made = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    return "\n".join([*parts, f'<p class="soft small">made by rampup report, {made}</p>'])


def one_run(
    data: RunData, labels: Sequence[str], charts: Sequence[Chart], chart_sections: dict[str, str]
) -> list[str]:
    attempts = attempts_table(data)
    parts = [
        head_of_one(data),
        notes_section([data], labels),
        chart_sections["curves"],
        evaluation_sections(data.evaluation, charts),
        chart_sections["throughput"],
        *([f"<h2>Attempts</h2>{attempts}"] if attempts else []),
        chart_sections["phases"],
        chart_sections["machine"],
    ]
    return parts + [f"<h2>{name}</h2>{inner}" for name, inner in detail_sections(data) if inner]


def several_runs(
    runs: Sequence[RunData],
    labels: Sequence[str],
    chart_sections: dict[str, str],
    study_table: StudyTable | None,
) -> list[str]:
    head = head_of_several(runs, labels)
    if study_table is not None:
        head += study_section(study_table)
    details = [run_details(data, label) for data, label in zip(runs, labels, strict=True)]
    notes = notes_section(runs, labels)
    return [head, notes, *chart_sections.values(), "<h2>Each run</h2>", *details]


# head ---------------------------------------------------------------------------------------------


def head_of_one(data: RunData) -> str:
    cards: dict[str, Any] = {
        "took": format_duration(data.wall_s) if data.wall_s is not None else None,
        "ranks": data.attempt.get("world_size"),
        "attempts": len(data.attempts) if data.has_several_attempts else None,
        "effective training time": effective_time(data),
        "on": as_table(data.config.get("cluster")).get("name"),
        "job": data.run.jobs()[-1] if data.run.jobs() else None,
        "created": format_time(data.identity.get("created")),
    }
    if data.best:
        name = f"best {data.best['metric']}{place_of_best(data.best)}"
        cards[name] = format_number(data.best["value"])
    for name, value in data.last.items():
        if is_shown(name, value):
            cards[f"last {name}"] = format_number(value)
    shown = "".join(
        f"<div><b>{escape(value)}</b><span>{escape(name)}</span></div>"
        for name, value in cards.items()
        if value
    )
    name, run_id = escape(data.name), escape(data.run.id)
    return (
        f"<h1>{name} <span class='soft'>{run_id}</span> {badge(data)}</h1>"
        f'<p class="soft small">{escape(data.run.path)}</p>{cause_part(data)}'
        f'<div class="facts">{shown}</div>{missing_part(data)}'
    )


def is_shown(name: str, value: Any) -> bool:
    """A table or a list in a row of metrics is foreign."""
    return name not in ("step", "lr") and not isinstance(value, dict | list)


def head_of_several(runs: Sequence[RunData], labels: Sequence[str]) -> str:
    head = ["run", "id", "state", "took", "samples/s", "epoch takes", "best", "all that differs"]
    differing = differing_settings(runs)
    rows = [
        row_of_several(index, data, labels[index], differing) for index, data in enumerate(runs)
    ]
    # the label says it all
    if len(differing) <= LABEL_SETTINGS and len({data.name for data in runs}) == 1:
        head, rows = head[:-1], [row[:-1] for row in rows]
    kept = [
        at for at, name in enumerate(head) if name not in NOT_OF_ALL or any(row[at] for row in rows)
    ]
    head, rows = [head[at] for at in kept], [[row[at] for at in kept] for row in rows]
    shades = ""
    if len(runs) > len(COLOURS):
        shades = f" From the {len(COLOURS) + 1}th run on, they are shades of the first."
    return (
        f"<h1>{escape(title_of_several(runs))}</h1>"
        f"<p class='soft small'>The colours are the legend of all charts; "
        f"a click on a run hides it.{shades}</p>"
        f"<div class='wide'>{html_table(head, rows, 'runs')}</div>"
    )


def row_of_several(index: int, data: RunData, label: str, differing: Sequence[str]) -> list[str]:
    swatch = f"<span class='swatch' style='background:{run_colour(index)}'></span>"
    key = f"<button class='key' aria-pressed='true'>{swatch}{escape(label)}</button>"
    why = f": {data.state.cause}" if data.state.cause else ""
    took = format_duration(data.wall_s) if data.wall_s is not None else ""
    if data.has_several_attempts:
        took += f" in {len(data.attempts)} attempts"
    speed = format_number(data.last["samples_s"]) if "samples_s" in data.last else ""
    epoch_s = finite(data.last.get("epoch_s"))
    best = ""
    if data.best:
        value = format_number(data.best["value"])
        best = f"{data.best['metric']} {value}{place_of_best(data.best)}"
    settings = all_settings(data)
    different = [f"{name}={format_value(settings[name])}" for name in differing if name in settings]
    return [
        key,
        escape(data.run.id),
        f"{badge(data)}{escape(cut(why, 80))}",
        escape(took),
        escape(speed),
        escape(format_duration(epoch_s) if epoch_s is not None else ""),
        escape(best),
        f"<div class='all'>{escape(cut(', '.join(different), 300))}</div>",
    ]


def badge(data: RunData) -> str:
    return f'<span class="state {escape(data.state.name)}">{escape(data.state.name)}</span>'


def cause_part(data: RunData) -> str:
    """Open with what `rampup why` says: the cause, its evidence, one thing to do."""
    if not data.state.cause:
        return ""
    evidence = hint = trace = ""
    if data.why is not None:
        lines = "\n".join(evidence_line(clue) for clue in data.why.evidence)
        evidence = f"<pre>{escape(lines)}</pre>" if lines else ""
        remedy = data.why.finding.remedy
        hint = f"<p><b>hint:</b> {escape(remedy)}</p>" if remedy else ""
    if data.traceback:
        lines = f"<pre>{escape(data.traceback)}</pre>"
        trace = f"<details><summary>traceback</summary>{lines}</details>"
    return f'<p class="cause">{escape(data.state.cause)}</p>{evidence}{hint}{trace}'


def evidence_line(clue: Clue) -> str:
    place = clue.file if clue.line is None else f"{clue.file}:{clue.line}"
    return f"{place}  {clue.text.strip()}".rstrip()


def missing_part(data: RunData) -> str:
    found = "".join(f"<li>{escape(words)}</li>" for words in data.missing)
    return f'<div class="small soft">Missing or unreadable:<ul>{found}</ul></div>' if found else ""


def place_of_best(best: dict[str, Any]) -> str:
    if best.get("epoch") is not None:
        return f" at epoch {best['epoch']}"
    return f" at step {best.get('step')}"


# notes --------------------------------------------------------------------------------------------


def notes_section(runs: Sequence[RunData], labels: Sequence[str]) -> str:
    """Name runs that share a note in one line."""
    shared: dict[Finding, list[str]] = {}
    for data, label in zip(runs, labels, strict=True):
        for finding in data.notes:
            shared.setdefault(finding, []).append(label)
    lines = [
        note_item(finding, whose if len(runs) > 1 else []) for finding, whose in shared.items()
    ]
    return f"<h2>Notes</h2><ul class='notes'>{''.join(lines)}</ul>" if lines else ""


def note_item(finding: Finding, whose: Sequence[str]) -> str:
    of = f"<span class='soft'>{escape(cut('; '.join(whose), 200))}: </span>" if whose else ""
    why = f": <span class='soft'>{escape(finding.cause)}</span>" if finding.cause else ""
    about = escape(finding.about)
    return f"<li class='{finding.level}'>{of}{about}{why}. {remedy_part(finding)}</li>"


def remedy_part(finding: Finding) -> str:
    """Set only what can be typed as code; a remedy without a setting becomes a sentence."""
    remedy = escape(finding.remedy)
    marked, settings = SETTING.subn(lambda found: f"<code>{found[0]}</code>", remedy)
    return f"Try {marked}" if settings else f"{marked[:1].upper()}{marked[1:]}."


# charts -------------------------------------------------------------------------------------------


def evaluation_sections(evaluation: Record, charts: Sequence[Chart]) -> str:
    """Show a classifier and its model, as the last validation saw them."""
    classes = [
        class_charts.class_table(evaluation),
        plots("classes", charts),
        class_charts.samples_picture(evaluation),
    ]
    model = [
        plots("model", charts),
        class_charts.model_graph(evaluation),
        class_charts.layers_list(evaluation),
    ]
    outputs = plots("outputs", charts)
    if outputs:
        outputs = f"<p class='soft small'>{OUTPUTS}</p>{outputs}"
    clusters = plots("clusters", charts)
    if clusters:
        clusters = f"<p class='soft small'>{CLUSTERS}</p>{clusters}"
    sections = (
        ("Classes", "".join(classes)),
        ("Clusters", clusters),
        ("Predictions", outputs),
        ("Model", "".join(model)),
    )
    return "".join(f"<h2>{name}</h2>{inner}" for name, inner in sections if inner)


def plots(key: str, charts: Sequence[Chart]) -> str:
    found = "".join(
        f'<div class="chart">{heading(chart)}<div class="plot" id="plot-{index}"></div></div>'
        for index, chart in enumerate(charts)
        if chart.section == key
    )
    return f'<div class="charts">{found}</div>' if found else ""


def chart_section(
    key: str, charts: Sequence[Chart], runs: Sequence[RunData], left: Sequence[str]
) -> str:
    inner = plots(key, charts)
    if not inner:
        return ""
    marked = any(chart.marks for chart in charts if chart.section == key)
    marked = marked and any(data.has_several_attempts for data in runs)
    return f"<h2>{CHART_SECTIONS[key]}</h2>{inner}{below_charts(key, runs, left, marked)}"


def heading(chart: Chart) -> str:
    scale = " <span class='soft'>log scale</span>" if chart.log_scale else ""
    return f"<h3>{escape(chart.title)}{scale}</h3>" if chart.title else ""


def below_charts(key: str, runs: Sequence[RunData], left: Sequence[str], marked: bool) -> str:
    words: list[str] = []
    if key == "curves" and marked:
        words.append(MARKS if len(runs) == 1 else MARKS_OF_MANY)
    if key == "curves" and any(data.evaluation.get("switches") for data in runs):
        words.append(SWITCHES)
    if key == "curves" and left:
        words.append(f"Not drawn, because there are too many: {cut(', '.join(left), 600)}")
    if key == "phases" and len(runs) == 1 and runs[0].phases.get("wall", 0.0) > 0:
        words = [phases_line(runs[0]), describe_reading(runs[0].reading)]
        lines = [f"<p class='small'>{escape(line)}</p>" for line in words if line]
        return "".join(lines)
    hidden = sum(max(0, len(data.system) - MOST_NODES) for data in runs)
    if key == "machine" and hidden:
        words.append(f"{hidden} more nodes are not drawn.")
    return "".join(f"<p class='soft small'>{escape(line)}</p>" for line in words)


def phases_line(data: RunData) -> str:
    wall_s, several = data.phases["wall"], data.has_several_attempts
    phases = {name: seconds for name, seconds in data.phases.items() if name != "wall"}
    shares = [f"{name} {seconds / wall_s:.0%}" for name, seconds in phases.items()]
    of = format_duration(wall_s)
    if several:
        of += f" over {len(data.attempts)} attempts"
    how = "as measured by rank 0"
    if NOT_MEASURED in phases:
        how = SOME_KILLED if several else KILLED
    return f"{' · '.join(shares)} of {of}, {how}"


# details ------------------------------------------------------------------------------------------


def run_details(data: RunData, label: str) -> str:
    """Return all that is known of one of several runs, folded."""
    sections = [("Attempts", attempts_table(data)), *detail_sections(data)]
    inner = "".join(f"<h2>{name}</h2>{part}" for name, part in sections if part)
    name = f"{escape(label)} <span class='soft'>{escape(data.run.id)}</span> {badge(data)}"
    return (
        f"<details><summary>{name}</summary>"
        f'<p class="soft small">{escape(data.run.path)}</p>'
        f"{cause_part(data)}{missing_part(data)}{inner}</details>"
    )


def detail_sections(data: RunData) -> list[tuple[str, str]]:
    log = ""
    if data.log:
        about = f"<p class='soft small'>the end of {escape(data.log_name)}</p>"
        log = f"{about}<pre>{escape(data.log)}</pre>"
    return [
        ("Settings", settings_tables(data)),
        ("Log", log),
        ("Profile", f"<pre>{escape(data.profile)}</pre>" if data.profile else ""),
        ("Environment", environment(data)),
    ]
