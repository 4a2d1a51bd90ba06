"""The charts of a report: which there are, their points, and their Vega-Lite specifications, made
by altair.

build.py embeds them in the page and writes them as PNG. altair is imported when a specification is
made, so that asking which charts there are stays light. Names from runs are only ever data and
titles, never fields or expressions.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import to_builtins

from rampup.report import class_charts, restarts
from rampup.report.chart import Chart as Chart
from rampup.report.chart import Series as Series
from rampup.report.story import NOT_MEASURED, Story, finite
from rampup.report.thin import fitting_limit, thin
from rampup.rundir.records import Record

COLOURS = (
    *("#4285f4", "#f2853f", "#2fae66", "#d65db1", "#8a6de0", "#c9a227"),
    *("#18a9b5", "#e05252", "#7f8c9b", "#a5714a", "#79a82c", "#b48ead"),
)
SHADES = ((0, 0.0), (0, 0.4), (255, 0.45), (0, 0.6), (255, 0.65))
"""Toward black or white, and how far."""
PHASE_COLOURS = {
    "start": "#7f8c9b",
    "data": "#c9a227",
    "compute": "#4285f4",
    "communication": "#d65db1",
    "evaluation": "#2fae66",
    "saving": "#f2853f",
    "other": "#a9b1ba",
    NOT_MEASURED: "#d5dae0",
}
POINTS = 30_000
"""Of all curves in one page together, which keeps it below 2 MB."""
MOST_METRICS = 16
MOST_NODES = 16
FEW_POINTS = 60
MANY_LINES = 16
FEWEST_GAPS = 8
WIDE_RANGE = 50.0
SPEEDS = {"samples_s": ("samples per second", "samples/s"), "epoch_s": ("seconds per epoch", "s")}
"""Metrics that are drawn apart, and their titles: of the chart, and of its axis."""
PREFIXES = ("train", "val")
KINDS = (*PREFIXES, "no prefix")
DASHES = ([1, 0], [5, 3], [1, 3])
SHORT_NUMBER = "format(datum.value, abs(datum.value) >= 1e6 ? '~s' : abs(datum.value) >= 1000 ? ',.0f' : '.4~g')"


def charts_of(stories: Sequence[Story], labels: Sequence[str]) -> tuple[list[Chart], list[str]]:
    """All charts, and the names of metrics that are too many to draw."""
    groups = metric_groups(stories)
    drawn, left = groups[:MOST_METRICS], groups[MOST_METRICS:]
    charts = [metric_chart(base, stories, labels) for base in drawn]
    machine = list(machine_charts(stories, labels))
    at_steps, at_times = restarts.step_marks(stories, labels), restarts.time_marks(stories, labels)
    for chart in charts:
        mine = {line.run for line in chart.series}
        chart.marks = [mark for mark in at_steps if mark.run in mine]
    for chart in machine:
        chart.marks = at_times
    told = class_charts.charts_of(stories[0]) if len(stories) == 1 else []
    found = [*charts, *phase_chart(stories, labels), *machine, *told]
    lines = [series for chart in found if chart.section != "phases" for series in chart.series]
    limit = fitting_limit([len(line.xs) for line in lines], POINTS)
    for line in lines:
        shorten(line, limit)
    return found, left


def shorten(line: Series, limit: int) -> None:
    bridge_many_gaps(line, max(FEWEST_GAPS, limit // 8))
    # several attempts, or no finite number there: each part keeps its share of the points
    if None in line.ys:
        line.xs, line.ys = _thin_parts(line, limit)
    else:
        xs, ys = thin(line.xs, [y for y in line.ys if y is not None], limit)
        line.xs, line.ys = xs, list(ys)
    line.xs = [_rounded(x, 9) for x in line.xs]
    line.ys = [None if y is None else _rounded(y, 6) for y in line.ys]


def bridge_many_gaps(line: Series, most: int) -> None:
    """Of a line that is interrupted without end, as by every second value, only the last gaps are
    kept."""
    gaps = [index for index, y in enumerate(line.ys) if y is None]
    bridged = set(gaps[:-most])
    if bridged:
        line.xs = [x for index, x in enumerate(line.xs) if index not in bridged]
        line.ys = [y for index, y in enumerate(line.ys) if index not in bridged]


def _thin_parts(line: Series, limit: int) -> tuple[list[float], list[float | None]]:
    ends = [index for index, y in enumerate(line.ys) if y is None] + [len(line.ys)]
    xs: list[float] = []
    ys: list[float | None] = []
    begin = 0
    for end in ends:
        part = [y for y in line.ys[begin:end] if y is not None]
        kept_xs, kept_ys = thin(line.xs[begin:end], part, max(4, limit // len(ends)))
        xs += [*kept_xs, *line.xs[end : end + 1]]
        ys += [*kept_ys, *line.ys[end : end + 1]]
        begin = end + 1
    return xs, ys


def _rounded(value: float, digits: int) -> float:
    """Digits that no eye can see would be half of the page."""
    rounded = float(f"{value:.{digits}g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded


# metrics ------------------------------------------------------------------------------------------


def base_of(name: str) -> str:
    return next(
        (name.removeprefix(f"{kind}_") for kind in PREFIXES if name.startswith(f"{kind}_")), name
    )


def metric_groups(stories: Sequence[Story]) -> list[str]:
    """`loss` for train_loss and val_loss; losses first, then what was validated, the rate and the
    speed last."""
    names = list(dict.fromkeys(name for story in stories for name in story.curves))
    bases = dict.fromkeys(base_of(name) for name in names if name != "lr" or rate_moves(stories))
    validated = {base_of(name) for name in names if name.startswith("val_")}

    def place(base: str) -> tuple[bool, bool, bool]:
        return base == "lr" or base in SPEEDS, "loss" not in base, base not in validated

    return sorted(bases, key=place)


def rate_moves(stories: Sequence[Story]) -> bool:
    """A rate that stays the same is a setting, and needs no chart."""
    return any(
        len({y for _, y in story.curves["lr"].points()}) > 1
        for story in stories
        if "lr" in story.curves
    )


def metric_chart(base: str, stories: Sequence[Story], labels: Sequence[str]) -> Chart:
    apart = any({base, f"train_{base}"} <= story.curves.keys() for story in stories)
    series = [
        Series(label, kind_of(name, apart), curve.xs, list(curve.ys))
        for story, label in zip(stories, labels, strict=True)
        for name, curve in story.curves.items()
        if base_of(name) == base
    ]
    speed, titles = base in SPEEDS, SPEEDS.get(base, (base, base))
    return Chart(
        name=re.sub(r"[^A-Za-z0-9_.-]+", "-", base).strip("-.") or "metric",
        title=titles[0],
        section="throughput" if speed else "curves",
        x_title="step",
        y_title=titles[1],
        series=series,
        runs=list(labels),
        log_scale="loss" in base and spans_widely(series),
        zero=speed,
    )


def kind_of(name: str, apart: bool) -> str:
    """A bare `loss` is that of training, unless a run has a train_loss too: then it is a line of
    its own."""
    return next(
        (kind for kind in PREFIXES if name.startswith(f"{kind}_")), KINDS[2] if apart else "train"
    )


def spans_widely(series: Sequence[Series]) -> bool:
    low = min((y for line in series for y in line.ys if y is not None), default=0.0)
    high = max((y for line in series for y in line.ys if y is not None), default=0.0)
    return low > 0 and high > WIDE_RANGE * low


# time and machine ---------------------------------------------------------------------------------


def phase_chart(stories: Sequence[Story], labels: Sequence[str]) -> Iterator[Chart]:
    series = [
        Series(label, phase, [max(0.0, round(story.phases[phase], 3))], [0.0])
        for story, label in zip(stories, labels, strict=True)
        for phase in PHASE_COLOURS
        if story.phases.get(phase)
    ]
    if series:
        known = [label for label in labels if any(line.run == label for line in series)]
        yield Chart("phases", "", "phases", "seconds", "", series, known)


def machine_charts(stories: Sequence[Story], labels: Sequence[str]) -> Iterator[Chart]:
    wanted = (
        ("cpu", "CPU busy", "%", "cpu_percent", 1.0),
        ("memory", "memory of the run", "GB", "rss_mb", 1 / 1024),
        ("node-memory", "memory of the node, all programs", "GB", "mem_used_mb", 1 / 1024),
    )
    for name, title, unit, key, factor in wanted:
        yield from machine_chart(
            name, title, unit, list(node_lines(stories, labels, key, factor)), labels
        )
    yield from machine_chart("gpu", "GPU busy", "%", list(gpu_lines(stories, labels)), labels)


def machine_chart(
    name: str, title: str, unit: str, lines: list[Series], labels: Sequence[str]
) -> Iterator[Chart]:
    """One run: each node has its colour. Several: all nodes of a run have the run's."""
    alone = len(labels) == 1
    if alone:
        lines = [Series(line.kind, "", line.xs, line.ys) for line in lines]
    runs = [line.run for line in lines] if alone else list(labels)
    if any(line.xs for line in lines):
        yield Chart(
            name,
            title,
            "machine",
            "minutes since the start",
            unit,
            lines,
            runs,
            zero=True,
            nodes=alone,
        )


def node_lines(
    stories: Sequence[Story], labels: Sequence[str], key: str, factor: float
) -> Iterator[Series]:
    for story, label in zip(stories, labels, strict=True):
        for node, parts in list(story.system.items())[:MOST_NODES]:
            # a last sample may find no process of the run any more
            values = [
                [(row["t"], row.get(key)) for row in part if key != "rss_mb" or row.get(key)]
                for part in parts
            ]
            yield time_line(label, node, values, factor, story.sampled[0])


def gpu_lines(stories: Sequence[Story], labels: Sequence[str]) -> Iterator[Series]:
    for story, label in zip(stories, labels, strict=True):
        for node, parts in list(story.system.items())[:MOST_NODES]:
            found: dict[str, list[list[tuple[float, Any]]]] = {}
            for number, part in enumerate(parts):
                for t, gpu in gpu_samples(part):
                    line = found.setdefault(f"{node} GPU {gpu.get('gpu')}", [[] for _ in parts])
                    line[number].append((t, gpu.get("util_percent")))
            for which, values in found.items():
                yield time_line(label, which, values, 1.0, story.sampled[0])


def gpu_samples(part: Sequence[Record]) -> Iterator[tuple[float, Record]]:
    for row in part:
        gpus = row.get("gpus")
        yield from (
            (row["t"], gpu)
            for gpu in (gpus if isinstance(gpus, list) else [])
            if isinstance(gpu, dict)
        )


def time_line(
    run: str, node: str, parts: list[list[tuple[float, Any]]], factor: float, begin: float
) -> Series:
    """Minutes since the first sample; between two attempts the line is interrupted."""
    line = Series(run, node, [], [])
    for part in parts:
        points = [(t, number) for t, value in part if (number := finite(value)) is not None]
        if line.xs and points:
            line.xs.append(line.xs[-1])
            line.ys.append(None)
        line.xs += [(t - begin) / 60 for t, _ in points]
        line.ys += [number * factor for _, number in points]
    return line


# specifications -----------------------------------------------------------------------------------


def rows_of(chart: Chart) -> list[dict[str, Any]]:
    """The points as Vega-Lite wants them; the page does the same in JavaScript."""
    return [
        {"run": line.run, "kind": line.kind, "x": x, "y": y}
        for line in chart.series
        for x, y in zip(line.xs, line.ys, strict=True)
    ]


def datasets(chart: Chart) -> dict[str, list[dict[str, Any]]]:
    return {"points": rows_of(chart), "marks": to_builtins(chart.marks)}


def specification(chart: Chart, for_paper: bool = False) -> dict[str, Any]:
    """Vega-Lite, with data named as in `datasets`. On paper there is a legend in each; a page has
    one for all charts.

    altair's own check of every part takes a third of the time; a test makes it.
    """
    from altair.utils.schemapi import debug_mode

    width, height = (640, 360) if for_paper else ("container", 260)
    if chart.section == "phases" or chart.cells:
        height = 60 + 28 * len(chart.runs)
    with debug_mode(False):
        if chart.cells:
            built = class_charts.cells(chart)
        else:
            built = phase_bars(chart) if chart.section == "phases" else lines(chart, for_paper)
        spec: dict[str, Any] = built.properties(width=width, height=height).to_dict(validate=False)
    spec.pop("config", None)  # colours of text and grid are the page's own
    return spec


def lines(chart: Chart, for_paper: bool) -> Any:
    import altair as alt

    kinds = [kind for kind in KINDS if any(line.kind == kind for line in chart.series)]
    alone, shown = len(chart.runs) == 1, max((len(line.xs) for line in chart.series), default=0)
    tooltip = [
        alt.Tooltip("run:N"),
        alt.Tooltip("x:Q", title=chart.x_title),
        alt.Tooltip("y:Q", title=chart.y_title),
    ]
    base = alt.Chart(alt.NamedData(name="points")).encode(
        x=alt.X(
            "x:Q", title=chart.x_title, axis=alt.Axis(tickCount=6), scale=alt.Scale(nice=False)
        ),
        y=alt.Y("y:Q", title=chart.y_title, scale=scale(chart), axis=axis_of(chart)),
        color=colour_of_line(chart, alone, kinds, for_paper),
        detail="kind:N",
    )
    if not alone and len(kinds) > 1:
        dashes = alt.Scale(domain=kinds, range=[DASHES[KINDS.index(kind)] for kind in kinds])
        base = base.encode(
            strokeDash=alt.StrokeDash(
                "kind:N", scale=dashes, title=None, legend=alt.Legend(orient="top")
            )
        )
    line = base.mark_line(
        strokeWidth=1.7,
        point=alt.OverlayMarkDef(size=18)
        if shown <= FEW_POINTS and len(chart.series) <= MANY_LINES
        else False,
    )
    several = not alone and not chart.nodes
    colour = colour_of_line(chart, alone, kinds, for_paper) if several else alt.value(restarts.GREY)
    under, over = restarts.layers(colour, numbered=not several) if chart.marks else ([], [])
    if for_paper:
        return alt.layer(line, *under, *over) if chart.marks else line
    near = alt.selection_point(
        name="near", nearest=True, on="pointermove", clear="pointerout", empty=False
    )
    dots = base.mark_circle(size=60).encode(
        opacity=alt.when(near).then(alt.value(1)).otherwise(alt.value(0))
    )
    dots = dots.encode(tooltip=tooltip, strokeDash=alt.value([1, 0])).add_params(near)
    return alt.layer(line, *under, dots, *over)


def axis_of(chart: Chart) -> Any:
    """A log scale leaves out labels that would touch each other, if one does not choose their
    words."""
    import altair as alt

    return (
        alt.Axis(tickCount=6) if chart.log_scale else alt.Axis(tickCount=6, labelExpr=SHORT_NUMBER)
    )


def scale(chart: Chart) -> Any:
    import altair as alt

    return alt.Scale(type="log", nice=False) if chart.log_scale else alt.Scale(zero=chart.zero)


def colour_of_line(chart: Chart, alone: bool, kinds: Sequence[str], for_paper: bool) -> Any:
    """One run: train and validation differ in colour. Several: the runs do."""
    import altair as alt

    if alone and kinds:
        domain, field = list(kinds), "kind:N"
        legend = alt.Legend(orient="top") if len(kinds) > 1 else None
        colours = [COLOURS[KINDS.index(kind)] for kind in kinds]
    else:
        domain, field = chart.runs, "run:N"
        wanted = not alone and (for_paper or chart.nodes)
        legend = alt.Legend(orient="bottom", columns=2, labelLimit=320) if wanted else None
        colours = [colour_of(index) for index in range(len(domain))]
    return alt.Color(
        field, title=None, scale=alt.Scale(domain=domain, range=colours), legend=legend
    )


def colour_of(index: int) -> str:
    """The colour of a run: from the 13th on the same ones darker, then lighter, so that no two of
    50 are alike."""
    toward, share = SHADES[index // len(COLOURS) % len(SHADES)]
    colour = COLOURS[index % len(COLOURS)]
    parts = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return "#" + "".join(f"{round(part + (toward - part) * share):02x}" for part in parts)


def phase_bars(chart: Chart) -> Any:
    import altair as alt

    phases = [phase for phase in PHASE_COLOURS if any(line.kind == phase for line in chart.series)]
    colours = alt.Scale(domain=phases, range=[PHASE_COLOURS[phase] for phase in phases])
    return (
        alt.Chart(alt.NamedData(name="points"))
        .mark_bar(height=18)
        .encode(
            x=alt.X("x:Q", title=chart.x_title, stack="zero", axis=alt.Axis(tickCount=6)),
            y=alt.Y(
                "run:N",
                title=None,
                sort=chart.runs,
                axis=alt.Axis(labelLimit=200, labels=len(chart.runs) > 1),
            ),
            color=alt.Color(
                "kind:N", title=None, scale=colours, legend=alt.Legend(orient="top", columns=4)
            ),
            order=alt.Order("place:Q"),
            tooltip=[
                alt.Tooltip("run:N"),
                alt.Tooltip("kind:N", title="phase"),
                alt.Tooltip("x:Q", title="seconds"),
            ],
        )
        .transform_calculate(place=f"indexof({phases!r}, datum.kind)")
    )


def png(chart: Chart) -> bytes:
    """The chart for a paper: white, with its own legend, twice the resolution of a screen."""
    import vl_convert

    spec = specification(chart, for_paper=True) | {
        "datasets": datasets(chart),
        "background": "white",
    }
    drawn: bytes = vl_convert.vegalite_to_png(spec, scale=2)
    return drawn
