"""The graph of a model as a picture of the report: a line for each operation, in the order in which
they are called.

What goes into the next line is a short stroke; what skips lines, as the shortcut of a ResNet does,
is an arc beside them. Drawn from the attempt's evaluation.json: names are shown as text, and what
is no graph draws nothing.
"""

from collections.abc import Iterator, Sequence
from html import escape

from rampup.rundir.records import Record

ROW, AXIS, WIDTH, TOP = 22, 90, 900, 14
"""Pixels: the height of a line, where the dots are, and the whole picture."""
NEAREST_ARC, PER_ROW = 14, 4
LONGEST = 90


def picture(evaluation: Record) -> str:
    rows = [row for row in evaluation.get("graph", []) if _is_operation(row)]
    if not rows:
        return ""
    place = {row["name"]: TOP + ROW * index for index, row in enumerate(rows)}
    drawn = [*_lines(rows, place), *(_operation(row, place[row["name"]]) for row in rows)]
    size = f"viewBox='0 0 {WIDTH} {TOP + ROW * len(rows)}' width='{WIDTH}' style='max-width:100%'"
    return f"<details><summary>graph</summary><svg role='img' aria-label='graph' {size}>{''.join(drawn)}</svg></details>"


def _is_operation(row: Record) -> bool:
    inputs = row.get("inputs")
    words = isinstance(inputs, list) and all(isinstance(each, str) for each in inputs)
    return words and isinstance(row.get("name"), str) and isinstance(row.get("kind"), str)


def _lines(rows: Sequence[Record], place: dict[str, int]) -> Iterator[str]:
    for row in rows:
        end = place[row["name"]]
        for begin in sorted({place[name] for name in row["inputs"] if place.get(name, end) < end}):
            apart = (end - begin) // ROW
            bend = 0 if apart == 1 else min(AXIS - 6, NEAREST_ARC + PER_ROW * apart)
            across = f"C{AXIS - bend},{begin} {AXIS - bend},{end} {AXIS},{end}"
            yield f"<path d='M{AXIS},{begin} {across}' fill='none' stroke='#9aa7b4' stroke-width='1.5'/>"


def _operation(row: Record, y: int) -> str:
    name, kind = escape(row["name"][:LONGEST]), escape(row["kind"][:LONGEST])
    return (
        f"<circle cx='{AXIS}' cy='{y}' r='4' fill='#1e5ab4'/><text x='{AXIS + 12}' y='{y + 4}' font-size='13' "
        f"fill='currentColor'>{name} <tspan fill='#7b8794'>{kind}</tspan></text>"
    )
