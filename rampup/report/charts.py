"""Which charts a report has, with their points and the marks of later attempts.

build.py asks for them; vega.py draws them, class_charts.py has those of a classifier. Pure: from
`RunData` to `Chart` records. altair is not imported here, so asking which charts there are is
light.
"""

import re
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from msgspec import Struct

from rampup.report.data import NOT_MEASURED, RunData, finite
from rampup.report.thin import choose_limit, thin_line
from rampup.rundir.history import Attempt
from rampup.rundir.records import Record

PHASES = (
    *("start", "data", "compute", "communication", "evaluation", "saving", "other"),
    NOT_MEASURED,
)
POINTS = 30_000
"""Of all curves in one page together, which keeps it below 2 MB."""
MOST_METRICS = 16
MOST_NODES = 16
WIDE_RANGE = 50.0
SPEEDS = {"samples_s": ("samples per second", "samples/s"), "epoch_s": ("seconds per epoch", "s")}
"""Metrics that are drawn apart, and their titles: of the chart, and of its axis."""
PREFIXES = ("train", "val")
KINDS = (*PREFIXES, "no prefix")
MACHINE = (
    ("cpu", "CPU busy", "%", "cpu_percent", 1.0),
    ("memory", "memory of the run", "GB", "rss_mb", 1 / 1024),
    ("node-memory", "node memory (all processes)", "GB", "mem_used_mb", 1 / 1024),
)
"""Charts of the samples: name, title, unit, key of a sample, and what it is multiplied by."""
MOST_MARKS = 300
"""In one page, however many runs; the newest of each run are drawn."""
REASON_LENGTH = 110
CLOSE = 0.03
"""Part of the width of a chart: numbers that stand closer would overlap."""
WORD = 0.08
"""The same of a number and a word."""
LONGEST_WORD = 24
MOST_SWITCHES = 10


Section = Literal[
    "curves", "throughput", "phases", "machine", "classes", "clusters", "outputs", "model"
]


class Mark(Struct):
    """Where a later attempt continued, or the training changed. The page reads these fields by
    name."""

    run: str
    x: float
    label: str
    """The number of the attempt, or a word; empty where it would overlap another one."""
    words: str


class Series(Struct):
    """One line: whose it is, which kind, and its points; None interrupts it."""

    run: str
    kind: str
    xs: list[float]
    ys: list[float | None]


class Chart(Struct):
    name: str
    """The stem of its PNG file."""
    title: str
    section: Section
    x_title: str
    y_title: str
    series: list[Series]
    runs: list[str]
    """The labels in the order of their colours."""
    log_scale: bool = False
    zero: bool = False
    nodes: bool = False
    """The lines are nodes or classes of one run, which the legend of the page does not name."""
    cells: bool = False
    """A table in colours. The run of a series is its row, its kind the column, x the number that
    is shown, y the shade."""
    points: bool = False
    """Points instead of a line, with the diagonal on which x and y are equal."""
    scatter: bool = False
    """Points in the colours of their groups; each series is a group."""
    columns: list[str] = []
    """The columns of a table in their order, where they are not the rows."""
    colours: list[int] = []
    """The place of the colour of each of `runs`, where it is not its own."""
    marks: list[Mark] = []
    """Where later attempts continued, or the training changed."""


def run_charts(runs: Sequence[RunData], labels: Sequence[str]) -> tuple[list[Chart], list[str]]:
    """Return all charts of the runs, and the names of metrics that are too many to draw."""
    groups = metric_groups(runs)
    drawn, left = groups[:MOST_METRICS], groups[MOST_METRICS:]
    metrics = [metric_chart(base, runs, labels) for base in drawn]
    machine = list(machine_charts(runs, labels))
    at_steps, at_times = step_marks(runs, labels), time_marks(runs, labels)
    at_steps += all_switch_marks(runs, labels, at_steps)
    for chart in metrics:
        mine = {line.run for line in chart.series}
        chart.marks = [mark for mark in at_steps if mark.run in mine]
    for chart in machine:
        chart.marks = at_times
    return [*metrics, *phase_chart(runs, labels), *machine], left


def thin_charts(charts: Sequence[Chart]) -> None:
    """Thin the lines of all charts to what fits into one page."""
    drawn = [
        chart
        for chart in charts
        if chart.section != "phases" and not (chart.points or chart.scatter)
    ]
    lines = [series for chart in drawn for series in chart.series]
    limit = choose_limit([len(line.xs) for line in lines], POINTS)
    for line in lines:
        line.xs, line.ys = thin_line(line.xs, line.ys, limit)


# metrics ------------------------------------------------------------------------------------------


def base_name(metric: str) -> str:
    """Return `loss` for train_loss and val_loss."""
    for kind in PREFIXES:
        if metric.startswith(f"{kind}_"):
            return metric.removeprefix(f"{kind}_")
    return metric


def metric_groups(runs: Sequence[RunData]) -> list[str]:
    """Return the base names of all metrics: losses first, then what was validated; the rate and the
    speed last."""
    names = list(dict.fromkeys(name for data in runs for name in data.curves))
    bases = dict.fromkeys(base_name(name) for name in names if name != "lr" or rate_varies(runs))
    validated = {base_name(name) for name in names if name.startswith("val_")}

    def place(base: str) -> tuple[bool, bool, bool]:
        return base == "lr" or base in SPEEDS, "loss" not in base, base not in validated

    return sorted(bases, key=place)


def rate_varies(runs: Sequence[RunData]) -> bool:
    """Tell whether the rate needs a chart: one that stays the same is a setting."""
    curves = [data.curves["lr"] for data in runs if "lr" in data.curves]
    return any(len({y for _, y in curve.points()}) > 1 for curve in curves)


def metric_chart(base: str, runs: Sequence[RunData], labels: Sequence[str]) -> Chart:
    apart = any({base, f"train_{base}"} <= data.curves.keys() for data in runs)
    series = [
        Series(label, line_kind(name, apart), curve.xs, list(curve.ys))
        for data, label in zip(runs, labels, strict=True)
        for name, curve in data.curves.items()
        if base_name(name) == base
    ]
    is_speed = base in SPEEDS
    title, y_title = SPEEDS.get(base, (base, base))
    return Chart(
        name=re.sub(r"[^A-Za-z0-9_.-]+", "-", base).strip("-.") or "metric",
        title=title,
        section="throughput" if is_speed else "curves",
        x_title="step",
        y_title=y_title,
        series=series,
        runs=list(labels),
        log_scale="loss" in base and has_wide_range(series),
        zero=is_speed,
    )


def line_kind(metric: str, apart: bool) -> str:
    """Return the kind of a metric's line. A bare `loss` is that of training, unless a run has a
    train_loss too: then it is a line apart."""
    for kind in PREFIXES:
        if metric.startswith(f"{kind}_"):
            return kind
    return KINDS[2] if apart else "train"


def has_wide_range(series: Sequence[Series]) -> bool:
    values = [y for line in series for y in line.ys if y is not None]
    low, high = min(values, default=0.0), max(values, default=0.0)
    return low > 0 and high > WIDE_RANGE * low


# time and machine ---------------------------------------------------------------------------------


def phase_chart(runs: Sequence[RunData], labels: Sequence[str]) -> Iterator[Chart]:
    series = [
        Series(label, phase, [max(0.0, round(data.phases[phase], 3))], [0.0])
        for data, label in zip(runs, labels, strict=True)
        for phase in PHASES
        if data.phases.get(phase)
    ]
    if series:
        known = [label for label in labels if any(line.run == label for line in series)]
        yield Chart("phases", "", "phases", "seconds", "", series, known)


def machine_charts(runs: Sequence[RunData], labels: Sequence[str]) -> Iterator[Chart]:
    for name, title, unit, key, factor in MACHINE:
        lines = list(node_lines(runs, labels, key, factor))
        yield from machine_chart(name, title, unit, lines, labels)
    yield from machine_chart("gpu", "GPU busy", "%", list(gpu_lines(runs, labels)), labels)


def machine_chart(
    name: str, title: str, unit: str, lines: list[Series], labels: Sequence[str]
) -> Iterator[Chart]:
    """Draw each node of one run in its own colour; of several runs all nodes have the run's."""
    alone = len(labels) == 1
    if alone:
        lines = [Series(line.kind, "", line.xs, line.ys) for line in lines]
    if any(line.xs for line in lines):
        yield Chart(
            name=name,
            title=title,
            section="machine",
            x_title="minutes since the start",
            y_title=unit,
            series=lines,
            runs=[line.run for line in lines] if alone else list(labels),
            zero=True,
            nodes=alone,
        )


def node_lines(
    runs: Sequence[RunData], labels: Sequence[str], key: str, factor: float
) -> Iterator[Series]:
    for data, label in zip(runs, labels, strict=True):
        for node, parts in list(data.system.items())[:MOST_NODES]:
            # a last sample may find no process of the run any more
            values = [
                [(row["t"], row.get(key)) for row in part if key != "rss_mb" or row.get(key)]
                for part in parts
            ]
            yield time_line(label, node, values, factor, data.sampled[0])


def gpu_lines(runs: Sequence[RunData], labels: Sequence[str]) -> Iterator[Series]:
    for data, label in zip(runs, labels, strict=True):
        for node, parts in list(data.system.items())[:MOST_NODES]:
            found: dict[str, list[list[tuple[float, Any]]]] = {}
            for number, part in enumerate(parts):
                for t, gpu in gpu_samples(part):
                    line = found.setdefault(f"{node} GPU {gpu.get('gpu')}", [[] for _ in parts])
                    line[number].append((t, gpu.get("util_percent")))
            for which, values in found.items():
                yield time_line(label, which, values, 1.0, data.sampled[0])


def gpu_samples(part: Sequence[Record]) -> Iterator[tuple[float, Record]]:
    for row in part:
        gpus = row.get("gpus")
        for gpu in gpus if isinstance(gpus, list) else []:
            if isinstance(gpu, dict):
                yield row["t"], gpu


def time_line(
    run: str, node: str, parts: list[list[tuple[float, Any]]], factor: float, begin: float
) -> Series:
    """Return a line over minutes since the first sample, interrupted between two attempts."""
    line = Series(run, node, [], [])
    for part in parts:
        points = [(t, number) for t, value in part if (number := finite(value)) is not None]
        if line.xs and points:
            line.xs.append(line.xs[-1])
            line.ys.append(None)
        line.xs += [(t - begin) / 60 for t, _ in points]
        line.ys += [number * factor for _, number in points]
    return line


# marks of later attempts --------------------------------------------------------------------------


def step_marks(runs: Sequence[RunData], labels: Sequence[str]) -> list[Mark]:
    """Return the marks for charts over steps. An attempt that ended before its first step has
    none."""
    found: list[Mark] = []
    for data, label in zip(runs, labels, strict=True):
        marks = [
            Mark(label, attempt.first_step, str(attempt.number), words)
            for attempt, words in later_attempts(data)
            if attempt.trained
        ]
        width = max((curve.xs[-1] for curve in data.curves.values() if curve.xs), default=0.0)
        found += merge_marks(keep_newest(marks, runs), width)
    return found


def time_marks(runs: Sequence[RunData], labels: Sequence[str]) -> list[Mark]:
    """Return the marks for charts over minutes since the first sample."""
    found: list[Mark] = []
    for data, label in zip(runs, labels, strict=True):
        begin, end = data.sampled
        marks = [
            Mark(label, (attempt.began - begin) / 60, str(attempt.number), words)
            for attempt, words in later_attempts(data)
            if attempt.began
        ]
        found += merge_marks(keep_newest(marks, runs), (end - begin) / 60)
    return found


def later_attempts(data: RunData) -> list[tuple[Attempt, str]]:
    """Return each attempt after the first, with the words for its mark."""
    pairs = zip(data.attempts, data.attempts[1:], strict=False)
    return [(attempt, describe_restart(attempt, before)) for before, attempt in pairs]


def describe_restart(attempt: Attempt, before: Attempt) -> str:
    if not attempt.trained:
        place = "(it reached no step)"
    else:
        place = f"from step {attempt.first_step:,}" if attempt.first_step else "from the beginning"
    reason = textwrap.shorten(before.reason, REASON_LENGTH, placeholder=" …")
    return f"attempt {attempt.number} {place}, after: {reason}"


def keep_newest(marks: list[Mark], runs: Sequence[RunData]) -> list[Mark]:
    marked_runs = sum(1 for data in runs if data.has_several_attempts)
    return marks[-max(1, MOST_MARKS // max(1, marked_runs)) :]


def merge_marks(marks: list[Mark], width: float) -> list[Mark]:
    """Make the marks readable: attempts that continued at one place share a mark, and of numbers
    that would touch, the first stays."""
    found: list[Mark] = []
    for mark in sorted(marks, key=lambda it: it.x):
        if found and found[-1].x == mark.x:
            shared = found[-1]
            shared.label = f"{shared.label.split('-')[0]}-{mark.label}" if shared.label else ""
            shared.words += f"; {mark.words}"
            continue
        labelled = [it.x for it in found if it.label]
        if labelled and mark.x - labelled[-1] < CLOSE * width:
            mark.label = ""
        found.append(mark)
    return found


# marks of a change of the training ----------------------------------------------------------------


def all_switch_marks(
    runs: Sequence[RunData], labels: Sequence[str], others: Sequence[Mark]
) -> list[Mark]:
    """Return the marks of all runs; the number of an attempt that a word would cover is left out.

    The attempt's mark itself stays, with its words.
    """
    found = [
        mark
        for data, label in zip(runs, labels, strict=True)
        for mark in switch_marks(data, label)[:MOST_SWITCHES]
    ]
    ends = [curve.xs[-1] for data in runs for curve in data.curves.values() if curve.xs]
    room = WORD * max(ends, default=0.0)
    for mark in others:
        if any(abs(mark.x - switch.x) < room for switch in found):
            mark.label = ""
    return found


def switch_marks(data: RunData, run: str) -> list[Mark]:
    """Return a mark for each step at which the training changed, as its recipe recorded it."""
    marks = []
    for row in data.evaluation.get("switches", []):
        step, label = finite(row.get("step")), str(row.get("label", ""))
        if step is not None and label:
            words = f"from step {step:,.0f}: {label}"
            marks.append(Mark(run, step, label[:LONGEST_WORD], words))
    return marks
