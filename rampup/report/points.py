"""The table of all points of a study, for a page that draws only the best of them. Pure: from words
to HTML."""

from msgspec import Struct

from rampup.report.template import text
from rampup.report.words import html_table


class Points(Struct, frozen=True):
    study: str
    about: str
    """Which of them are drawn."""
    head: list[str]
    rows: list[list[str]]


def section(points: Points) -> str:
    cells = [[text(cell) for cell in row] for row in points.rows]
    inner = html_table(points.head, cells)
    return (
        f"<h2>All points of the study {text(points.study)}</h2>"
        f"<p class='soft small'>{text(points.about)}</p><div class='wide'>{inner}</div>"
    )
