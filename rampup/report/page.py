"""The page around a report, and how numbers, times and tables are written into it as HTML.

page.html has the places to fill; page.css and page.js lie beside it and are embedded, so that the
page needs nothing else. Used by everything in this room that writes HTML. Whatever comes from a run
passes `escape` first, and the policy in the head of page.html forbids the page to load anything.
"""

import html
import json
import re
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rampup.report.data import finite

FOLDER = Path(__file__).parent
UNPRINTABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")
LONGEST_VALUE = 600
LATEST_TIME = 1e11


def fill_page(title: str, body: str, data: Any, bundle: str) -> str:
    """Return the whole page. `body` is HTML already; the other parts are made safe here.

    `bundle` is the script that draws charts; a page without charts has none.
    """
    parts = {
        "title": escape(title),
        "style": f"\n{read_part('page.css')}",
        "body": body,
        "data": script_json(data),
        "bundle": bundle,
        "script": f"\n{read_part('page.js')}" if bundle else "",
    }
    return re.sub(r"%(\w+)%", lambda place: parts[place[1]], read_part("page.html"))


def read_part(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")


def escape(value: Any) -> str:
    """Return anything from a run as text that a browser only shows."""
    return html.escape(UNPRINTABLE.sub("\ufffd", str(value)))


def script_json(value: Any) -> str:
    """Return JSON that can't end the script element it stands in."""
    dumped = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return dumped.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def html_table(head: Sequence[str], rows: Iterable[Sequence[str]], kind: str = "") -> str:
    """Return a table of the CSS class `kind`. The cells of `rows` are HTML already."""
    top = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    lines = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table class='{kind}'><thead><tr>{top}</tr></thead><tbody>{lines}</tbody></table>"


# values as text -----------------------------------------------------------------------------------


def cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"


def format_value(value: Any) -> str:
    """Write a setting or a fact as a person would: `commit=1a2b3c, dirty=True` for a table.

    Empty parts of a table are left out.
    """
    if isinstance(value, dict):
        filled = {key: part for key, part in value.items() if part not in (None, "", [], {})}
        value = ", ".join(f"{key}={part}" for key, part in filled.items()) or None
    elif isinstance(value, list):
        value = ", ".join(map(str, value)) or None
    return cut("none" if value is None else str(value), LONGEST_VALUE)


def format_number(value: Any) -> str:
    """Write four digits, and thousands with commas. A null in a metric was not finite."""
    if value is None:
        return "not finite"
    number = finite(value)
    if number is None:
        return cut(str(value), 40)
    if isinstance(number, int) or abs(number) >= 1000:
        return f"{number:,.0f}"
    return f"{number:.4g}"


def format_duration(seconds: float) -> str:
    """Write 4.2 s, 3 min 05 s or 2 h 14 min."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def format_time(t: Any) -> str | None:
    """Write seconds since 1970 as a date, or return None for what is not a time."""
    seconds = finite(t)
    if not seconds or not 0 < seconds < LATEST_TIME:
        return None
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(seconds))
