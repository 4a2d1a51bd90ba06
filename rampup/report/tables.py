"""The tables of a report, as HTML: attempts, settings, environment, and all points of a study.

Pure: from the `RunData` of one run to text. Called by sections.py.
"""

from typing import Any

from msgspec import Struct

from rampup.report.data import RunData, as_table
from rampup.report.page import (
    LONGEST_VALUE,
    cut,
    escape,
    format_duration,
    format_value,
    html_table,
)
from rampup.rundir.history import Attempt, effective_ratio

SETTINGS_TABLES = ("train", "checkpoint", "resources")
LOADER = ("workers", "persistent_workers", "pin_memory")
EFFECTIVE = (
    "the share of the time, from first start to last recorded activity, spent on steps that count. "
    "The rest is startup, repeated work, and waiting between attempts."
)
EXACTNESS = {None: "", True: "bit for bit", False: "not bit for bit"}


# attempts -----------------------------------------------------------------------------------------


def effective_time(data: RunData) -> str | None:
    ratio = effective_ratio(data.attempts) if data.has_several_attempts else None
    return f"{ratio:.0%}" if ratio is not None else None


def attempts_table(data: RunData) -> str:
    """Show what each attempt did, and what the interruptions cost; nothing for a single attempt."""
    if not data.has_several_attempts:
        return ""
    head = ("attempt", "from step", "to step", "redone", "took", "ended", "resumed")
    rows = [attempt_row(attempt, data) for attempt in data.attempts]
    redone = sum(attempt.redone for attempt in data.attempts)
    cost = "No step is known to have been redone."
    if redone:
        steps = "steps were" if redone > 1 else "step was"
        lost = format_duration(sum(attempt.lost_s for attempt in data.attempts))
        cost = f"{redone:,} {steps} redone, {lost} of work."
    ratio = effective_time(data)
    so_far = "" if data.state.ended else " so far"
    meaning = f" Effective training time{so_far}: {ratio}, {EFFECTIVE}" if ratio else ""
    table = html_table(head, rows, "attempts")
    return f"<div class='wide'>{table}</div><p class='small'>{escape(cost + meaning)}</p>"


def attempt_row(attempt: Attempt, data: RunData) -> list[str]:
    if attempt is data.attempts[-1] and not data.state.ended:
        ended = data.state.name
    else:
        why = f": {attempt.cause}" if attempt.cause and attempt.how == "failed" else ""
        ended = f"{attempt.how}{cut(why, 200)}"
    steps = ["-", "-"]
    if attempt.trained:
        steps = [f"{attempt.first_step:,}", f"{attempt.last_step:,}"]
    took = format_duration(attempt.took_s) if attempt.took_s is not None else "-"
    resumed = EXACTNESS[attempt.exact]
    cells = (attempt.number, *steps, f"{attempt.redone:,}", took, ended, resumed)
    return [escape(cell) for cell in cells]


# settings and environment -------------------------------------------------------------------------


def settings_tables(data: RunData) -> str:
    tables = "".join(settings_table(data, name) for name in SETTINGS_TABLES)
    words = data.config.get("command")
    command = ""
    if words and isinstance(words, list):
        line = cut(" ".join(map(str, words)), LONGEST_VALUE)
        command = f"<p>command: <code>{escape(line)}</code></p>"
    return f"{command}<div class='two'>{tables}</div>" if command or tables else ""


def settings_table(data: RunData, name: str) -> str:
    origins = as_table(data.config.get("origins"))
    rows = []
    for key, value in as_table(data.config.get(name)).items():
        if name == "train" or value not in (None, []):
            origin = cut(str(origins.get(f"{name}.{key}", "")), 100)
            rows.append([escape(key), escape(format_value(value)), escape(origin)])
    return f"<div class='wide'>{html_table((name, 'value', 'origin'), rows)}</div>" if rows else ""


def environment(data: RunData) -> str:
    apart = ("packages", "variables")
    machine = {
        key: value for key, value in data.env.items() if key not in apart and value is not None
    }
    for key in ("device", "threads", "gradients"):
        if key in data.start:
            machine[key] = data.start[key]
    machine |= {f"loader {key}": data.loader[key] for key in LOADER if key in data.loader}
    parts = (("machine", machine), ("package", as_table(data.env.get("packages"))))
    tables = "".join(pairs_table(name, values) for name, values in parts if values)
    variables = as_table(data.env.get("variables"))
    more = ""
    if variables:
        inner = pairs_table("variable", variables)
        more = f"<details><summary>variables</summary>{inner}</details>"
    return f"<div class='two'>{tables}</div>{more}" if tables or more else ""


def pairs_table(name: str, values: dict[str, Any]) -> str:
    rows = [[escape(key), escape(format_value(value))] for key, value in values.items()]
    return f"<div class='wide'>{html_table((name, ''), rows)}</div>"


# a study ------------------------------------------------------------------------------------------


class StudyTable(Struct, frozen=True):
    """All points of a study, for a page that draws only the best of them."""

    study: str
    about: str
    """Which of them are drawn."""
    head: list[str]
    rows: list[list[str]]


def study_section(table: StudyTable) -> str:
    rows = [[escape(cell) for cell in row] for row in table.rows]
    return (
        f"<h2>All points of the study {escape(table.study)}</h2>"
        f"<p class='soft small'>{escape(table.about)}</p>"
        f"<div class='wide'>{html_table(table.head, rows, 'points')}</div>"
    )
