"""A run as a small piece of HTML for a notebook: its state, and its metrics as curves. Pure text; a
report is what `rampup report` writes."""

import html
import math

from rampup.core.metrics import is_number
from rampup.rundir.files import RunDir
from rampup.rundir.records import Record
from rampup.runs.state import State

MOST_CURVES, MOST_POINTS = 6, 300
WIDTH, HEIGHT = 220, 90
NOT_DRAWN = ("t", "step", "epoch")
COLOURS = {"completed": "#2a7", "failed": "#c33", "timeout": "#c33", "cancelled": "#b80"}


def draw_run(run: RunDir, state: State) -> str:
    """Return the state of a run, and a curve for each of its metrics."""
    colour = COLOURS.get(state.name, "#27c")
    cause = f": {html.escape(state.cause)}" if state.cause else ""
    head = f"<div><b>{run.id}</b> <span style='color:{colour}'>{state.name}</span>{cause}</div>"
    rows = run.history()
    names = dict.fromkeys(key for row in rows for key in row if key not in NOT_DRAWN)
    curves = [draw_curve(name, rows) for name in list(names)[:MOST_CURVES]]
    return head + "".join(curves)


def draw_bar(share: float) -> str:
    """Return a bar that is full at 1."""
    done = round(100 * min(1.0, max(0.0, share)))
    return (
        "<span style='display:inline-block;width:180px;height:9px;background:#ddd'>"
        f"<span style='display:block;width:{done}%;height:9px;background:#27c'></span></span> {done}%"
    )


def draw_curve(name: str, rows: list[Record]) -> str:
    """Return one metric over the steps as SVG; empty where it has fewer than two numbers."""
    points = [
        (float(row["step"]), float(row[name]))
        for row in rows
        if is_number(row.get("step")) and is_number(row.get(name)) and math.isfinite(row[name])
    ]
    if len(points) < 2:
        return ""
    every = math.ceil(len(points) / MOST_POINTS)
    points = [*points[::every], points[-1]]
    xs, ys = zip(*points, strict=True)
    low, high = min(ys), max(ys)
    across, up = (xs[-1] - xs[0]) or 1.0, (high - low) or 1.0
    line = " ".join(
        f"{(x - xs[0]) / across * WIDTH:.1f},{HEIGHT - (y - low) / up * HEIGHT:.1f}"
        for x, y in points
    )
    label = f"{html.escape(name)} {ys[-1]:.4g}"
    return (
        f"<figure style='display:inline-block;margin:4px'><figcaption>{label} "
        f"<small>({low:.4g} to {high:.4g})</small></figcaption>"
        f"<svg width='{WIDTH}' height='{HEIGHT}' viewBox='-2 -2 {WIDTH + 4} {HEIGHT + 4}'>"
        f"<polyline points='{line}' fill='none' stroke='#27c' stroke-width='1.5'/></svg></figure>"
    )
