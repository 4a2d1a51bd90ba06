"""Charts as Vega-Lite: their specifications, made by altair, as PNG, and the script that draws them
in a browser.

Called by build.py. altair and vl_convert are imported when something is made, so that importing
this stays light. Names from runs are only ever data and titles, never fields or expressions.
"""

import contextlib
import hashlib
import os
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from msgspec import to_builtins

from rampup.core import paths
from rampup.report.charts import KINDS, PHASES, Chart

COLOURS = (
    *("#4285f4", "#f2853f", "#2fae66", "#d65db1", "#8a6de0", "#c9a227"),
    *("#18a9b5", "#e05252", "#7f8c9b", "#a5714a", "#79a82c", "#b48ead"),
)
SHADES = ((0, 0.0), (0, 0.4), (255, 0.45), (0, 0.6), (255, 0.65))
"""Toward black or white, and how far."""
PHASE_COLOURS = dict(
    zip(
        PHASES,
        (
            *("#7f8c9b", "#c9a227", "#4285f4", "#d65db1"),
            *("#2fae66", "#f2853f", "#a9b1ba", "#d5dae0"),
        ),
        strict=True,
    )
)
MARK_COLOUR = "#8795a4"
"""Visible on white and on black."""
FEW_POINTS = 60
MANY_LINES = 16
DASHES = ([1, 0], [5, 3], [1, 3])
SHORT_NUMBER = (
    "format(datum.value, abs(datum.value) >= 1e6 ? '~s' : "
    "abs(datum.value) >= 1000 ? ',.0f' : '.4~g')"
)


def run_colour(index: int) -> str:
    """Return the colour of a run. From the 13th on they are the same ones darker, then lighter, so
    that no two of 50 are alike."""
    toward, share = SHADES[index // len(COLOURS) % len(SHADES)]
    colour = COLOURS[index % len(COLOURS)]
    parts = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return "#" + "".join(f"{round(part + (toward - part) * share):02x}" for part in parts)


# specifications -----------------------------------------------------------------------------------


def specification(chart: Chart, for_paper: bool = False) -> dict[str, Any]:
    """Return the chart as Vega-Lite, with data named as in `datasets`.

    On paper each chart has a legend; a page has one for all charts. altair's own check of every
    part takes a third of the time; a test makes it.
    """
    from altair.utils.schemapi import debug_mode

    width, height = (640, 360) if for_paper else ("container", 260)
    if chart.section == "phases" or chart.cells:
        height = 60 + 28 * len(chart.runs)
    with debug_mode(False):
        if chart.cells:
            built = cell_chart(chart)
        elif chart.section == "phases":
            built = phase_bars(chart)
        elif chart.points:
            built = point_chart(chart)
        elif chart.scatter:
            built = scatter_chart(chart)
        else:
            built = line_chart(chart, for_paper)
        spec: dict[str, Any] = built.properties(width=width, height=height).to_dict(validate=False)
    spec.pop("config", None)  # colours of text and grid are the page's own
    return spec


def line_chart(chart: Chart, for_paper: bool) -> Any:
    import altair as alt

    kinds = [kind for kind in KINDS if any(line.kind == kind for line in chart.series)]
    alone = len(chart.runs) == 1
    colour = line_colour(chart, alone, kinds, for_paper)
    x_axis = alt.Axis(tickCount=6)
    base = alt.Chart(alt.NamedData(name="points")).encode(
        x=alt.X("x:Q", title=chart.x_title, axis=x_axis, scale=alt.Scale(nice=False)),
        y=alt.Y("y:Q", title=chart.y_title, scale=y_scale(chart), axis=y_axis(chart)),
        color=colour,
        detail="kind:N",
    )
    line = base.mark_line(strokeWidth=1.7)
    if not alone and len(kinds) > 1:
        dashes = alt.Scale(domain=kinds, range=[DASHES[KINDS.index(kind)] for kind in kinds])
        legend = alt.Legend(orient="top", symbolType="stroke", symbolSize=500)
        line = line.encode(
            strokeDash=alt.StrokeDash("kind:N", scale=dashes, title=None, legend=legend)
        )
    # a layer of their own: as a part of the line they would be its symbol in the legend
    lines = [line, base.mark_circle(size=18, opacity=1)] if has_points(chart) else [line]
    several = not alone and not chart.nodes
    mark_colour = colour if several else alt.value(MARK_COLOUR)
    under, over = mark_layers(mark_colour, numbered=not several) if chart.marks else ([], [])
    if for_paper:
        return alt.layer(*lines, *under, *over)
    return alt.layer(*lines, *under, nearest_dots(base, chart), *over)


def point_chart(chart: Chart) -> Any:
    """Return points, and the diagonal that they would lie on."""
    import altair as alt

    ends = [x for line in chart.series for x in line.xs]
    ends += [y for line in chart.series for y in line.ys if y is not None]
    scale = alt.Scale(domain=[min(ends), max(ends)], nice=True)
    base = alt.Chart(alt.NamedData(name="points")).encode(
        x=alt.X("x:Q", title=chart.x_title, scale=scale, axis=alt.Axis(tickCount=6)),
        y=alt.Y("y:Q", title=chart.y_title, scale=scale, axis=alt.Axis(tickCount=6)),
        tooltip=[
            alt.Tooltip("x:Q", title=chart.x_title),
            alt.Tooltip("y:Q", title=chart.y_title),
        ],
    )
    diagonal = base.encode(y=alt.Y("x:Q", title=chart.y_title, scale=scale))
    line = diagonal.mark_line(strokeWidth=1, strokeDash=[4, 3], color=MARK_COLOUR)
    return alt.layer(line, base.mark_circle(size=24, opacity=0.6, color=COLOURS[0]))


def scatter_chart(chart: Chart) -> Any:
    """Return points in the colours of their groups."""
    import altair as alt

    scale, axis = alt.Scale(zero=False, nice=False, padding=8), alt.Axis(tickCount=6)
    shades = alt.Scale(domain=chart.runs, range=[run_colour(place) for place in chart.colours])
    legend = alt.Legend(orient="top", columns=4, symbolSize=80, symbolOpacity=1)
    return (
        alt.Chart(alt.NamedData(name="points"))
        .mark_circle(size=18, opacity=0.65)
        .encode(
            x=alt.X("x:Q", title=chart.x_title, scale=scale, axis=axis),
            y=alt.Y("y:Q", title=chart.y_title, scale=scale, axis=axis),
            color=alt.Color("run:N", title=None, scale=shades, legend=legend),
            tooltip=[alt.Tooltip("run:N", title="group")],
        )
    )


def has_points(chart: Chart) -> bool:
    """Whether the points of the lines are few enough to be drawn as dots."""
    longest = max((len(line.xs) for line in chart.series), default=0)
    return longest <= FEW_POINTS and len(chart.series) <= MANY_LINES


def nearest_dots(base: Any, chart: Chart) -> Any:
    """Return the layer that shows the point next to the pointer, with its numbers."""
    import altair as alt

    tooltip = [
        alt.Tooltip("run:N"),
        alt.Tooltip("x:Q", title=chart.x_title),
        alt.Tooltip("y:Q", title=chart.y_title),
    ]
    near = alt.selection_point(
        name="near", nearest=True, on="pointermove", clear="pointerout", empty=False
    )
    opacity = alt.when(near).then(alt.value(1)).otherwise(alt.value(0))
    dots = base.mark_circle(size=60).encode(opacity=opacity)
    return dots.encode(tooltip=tooltip).add_params(near)


def mark_layers(colour: Any, numbered: bool) -> tuple[list[Any], list[Any]]:
    """Return what lies under the points, and what lies over them: nobody could point at a rule one
    pixel wide."""
    import altair as alt

    base = alt.Chart(alt.NamedData(name="marks")).encode(x="x:Q", color=colour)
    rule = base.mark_rule(strokeWidth=1, strokeDash=[4, 3], opacity=0.9)
    number = base.mark_text(baseline="bottom", dy=-3, fontSize=11)
    number = number.encode(y=alt.value(0), text="label:N")
    target = base.mark_rule(strokeWidth=11, opacity=0.001).encode(tooltip="words:N")
    return [rule], [number, target] if numbered else [target]


def y_axis(chart: Chart) -> Any:
    """A log scale leaves out labels that would touch each other, but only while their text is not
    chosen."""
    import altair as alt

    if chart.log_scale:
        return alt.Axis(tickCount=6)
    return alt.Axis(tickCount=6, labelExpr=SHORT_NUMBER)


def y_scale(chart: Chart) -> Any:
    import altair as alt

    return alt.Scale(type="log", nice=False) if chart.log_scale else alt.Scale(zero=chart.zero)


def line_colour(chart: Chart, alone: bool, kinds: Sequence[str], for_paper: bool) -> Any:
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
        colours = [run_colour(index) for index in range(len(domain))]
    scale = alt.Scale(domain=domain, range=colours)
    return alt.Color(field, title=None, scale=scale, legend=legend)


def phase_bars(chart: Chart) -> Any:
    import altair as alt

    phases = [phase for phase in PHASES if any(line.kind == phase for line in chart.series)]
    colours = alt.Scale(domain=phases, range=[PHASE_COLOURS[phase] for phase in phases])
    legend = alt.Legend(orient="top", columns=4)
    run_axis = alt.Axis(labelLimit=200, labels=len(chart.runs) > 1)
    bars = alt.Chart(alt.NamedData(name="points")).mark_bar(height=18)
    bars = bars.encode(
        x=alt.X("x:Q", title=chart.x_title, stack="zero", axis=alt.Axis(tickCount=6)),
        y=alt.Y("run:N", title=None, sort=chart.runs, axis=run_axis),
        color=alt.Color("kind:N", title=None, scale=colours, legend=legend),
        order=alt.Order("place:Q"),
        tooltip=[
            alt.Tooltip("run:N"),
            alt.Tooltip("kind:N", title="phase"),
            alt.Tooltip("x:Q", title="seconds"),
        ],
    )
    return bars.transform_calculate(place=f"indexof({phases!r}, datum.kind)")


def cell_chart(chart: Chart) -> Any:
    """Return a table in colours."""
    import altair as alt

    top_axis = alt.Axis(orient="top", labelAngle=-40)
    base = alt.Chart(alt.NamedData(name="points")).encode(
        x=alt.X("kind:N", sort=chart.columns or chart.runs, title=chart.x_title, axis=top_axis),
        y=alt.Y("run:N", sort=chart.runs, title=chart.y_title),
        tooltip=[
            alt.Tooltip("run:N", title=chart.y_title),
            alt.Tooltip("kind:N", title=chart.x_title),
            alt.Tooltip("x:Q", title="samples"),
            alt.Tooltip("y:Q", title="part of the class", format=".1%"),
        ],
    )
    shades = alt.Scale(domain=[0, 1], range=["#f4f8fd", "#1e5ab4"])
    shade = alt.Color("y:Q", scale=shades, legend=None)
    ink = alt.condition("datum.y > 0.5", alt.value("#ffffff"), alt.value("#1d232a"))
    return alt.layer(
        base.mark_rect().encode(color=shade),
        base.mark_text(fontSize=11).encode(text="x:Q", color=ink),
    )


# pictures -----------------------------------------------------------------------------------------


def png(chart: Chart) -> bytes:
    """Draw the chart for a paper: white, with its own legend, twice the resolution of a screen."""
    import vl_convert

    data = {"datasets": datasets(chart), "background": "white"}
    drawn: bytes = vl_convert.vegalite_to_png(specification(chart, for_paper=True) | data, scale=2)
    return drawn


def datasets(chart: Chart) -> dict[str, list[dict[str, Any]]]:
    """Return the points and marks as Vega-Lite wants them; page.js does the same."""
    points = [
        {"run": line.run, "kind": line.kind, "x": x, "y": y}
        for line in chart.series
        for x, y in zip(line.xs, line.ys, strict=True)
    ]
    return {"points": points, "marks": to_builtins(chart.marks)}


# the script that draws in a browser ---------------------------------------------------------------


def script_bundle() -> str:
    """Return Vega, Vega-Lite and vega-embed as one script, so that a page needs no network.

    Making it takes vl-convert about two seconds, and it is the same for all reports: it is kept in
    the user's cache, and made again when vl-convert is another version or the copy is damaged.
    """
    file = bundle_file()
    with contextlib.suppress(OSError):
        digest, _, kept = file.read_bytes().partition(b"\n")
        if digest.decode("ascii", "replace") == hashlib.sha256(kept).hexdigest():
            return kept.decode()
    made = make_bundle()
    with contextlib.suppress(OSError):  # no room, or no home: the next report makes it again
        keep_bundle(made, file)
    return made


def bundle_file() -> Path:
    return paths.cache_home() / "rampup" / f"vega-{version('vl-convert-python')}.js"


def make_bundle() -> str:
    import vl_convert

    # its types want a snippet; without one it is altair's own bundle
    script: str = vl_convert.javascript_bundle()  # type: ignore[call-arg]
    return script.replace("</script", "<\\/script")


def keep_bundle(script: str, file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    beside = file.with_name(f".{file.name}.{os.getpid()}")
    content = script.encode()
    beside.write_bytes(hashlib.sha256(content).hexdigest().encode() + b"\n" + content)
    os.replace(beside, file)
