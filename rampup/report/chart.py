"""One chart of a report as data: what its lines are, and where it stands. Made by charts.py and
class_charts.py."""

from typing import Literal

from msgspec import Struct

from rampup.report.restarts import Mark


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
    section: Literal["curves", "throughput", "phases", "machine", "classes", "model"]
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
    """A table in colours: of each series the run is its row, the kind its column, x what stands
    there, y the shade."""
    marks: list[Mark] = []
    """Where later attempts took up."""
