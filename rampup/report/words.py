"""How a report writes numbers, times and tables. Pure; used by whoever writes HTML for it."""

import time
from collections.abc import Iterable, Sequence
from typing import Any

from rampup.report.story import finite
from rampup.report.template import text

LONGEST_VALUE = 600


def cut(words: str, length: int) -> str:
    return words if len(words) <= length else f"{words[: length - 1]}…"


def shown(value: Any) -> str:
    """A setting or a fact as a person would write it: `commit=1a2b3c, dirty=True` for a table,
    empty ones left out."""
    if isinstance(value, dict):
        value = (
            ", ".join(f"{name}={it}" for name, it in value.items() if it not in (None, "", [], {}))
            or None
        )
    elif isinstance(value, list):
        value = ", ".join(map(str, value)) or None
    return cut("none" if value is None else str(value), LONGEST_VALUE)


def number(value: Any) -> str:
    """Four digits, thousands with commas; what is null was no finite number."""
    if value is None:
        return "not finite"
    found = finite(value)
    if found is None:
        return cut(str(value), 40)
    return f"{found:,.0f}" if isinstance(found, int) or abs(found) >= 1000 else f"{found:.4g}"


def duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return (
        f"{minutes} min {rest:02d} s"
        if minutes < 60
        else f"{minutes // 60} h {minutes % 60:02d} min"
    )


def moment(t: Any) -> str | None:
    seconds = finite(t)
    return (
        time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(seconds))
        if seconds and 0 < seconds < 1e11
        else None
    )


def html_table(head: Sequence[str], rows: Iterable[Sequence[str]], kind: str = "") -> str:
    """`rows` hold HTML already."""
    top = "".join(f"<th>{text(cell)}</th>" for cell in head)
    lines = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table class='{kind}'><thead><tr>{top}</tr></thead><tbody>{lines}</tbody></table>"
