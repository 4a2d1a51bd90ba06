"""Where later attempts took up: marks for the charts, with why the attempt before had ended.

charts.py asks for them. Pure, and altair is imported when they are drawn. A run of one attempt has
none.
"""

import textwrap
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from rampup.report.story import Story
from rampup.rundir.history import Attempt

MOST_MARKS = 300
"""In one page, however many runs; of a run the newest are drawn."""
REASON_LENGTH = 110
GREY = "#8795a4"
"""Seen on white and on black."""
CLOSE = 0.03
"""Of the width of a chart: numbers that stand closer would lie on each other."""


class Mark(Struct):
    run: str
    x: float
    label: str
    """The number of the attempt; empty where it would lie on another one."""
    words: str


def step_marks(stories: Sequence[Story], labels: Sequence[str]) -> list[Mark]:
    """For charts over steps. An attempt that ended before it took up has no place there."""
    found: list[Mark] = []
    for story, label in zip(stories, labels, strict=True):
        marks = [
            Mark(label, it.first_step, str(it.number), words)
            for it, words in later(story)
            if it.trained
        ]
        width = max((curve.xs[-1] for curve in story.curves.values() if curve.xs), default=0.0)
        found += readable(newest(marks, stories), width)
    return found


def time_marks(stories: Sequence[Story], labels: Sequence[str]) -> list[Mark]:
    """For charts over minutes since the first sample."""
    found: list[Mark] = []
    for story, label in zip(stories, labels, strict=True):
        begin, end = story.sampled
        marks = [
            Mark(label, (it.began - begin) / 60, str(it.number), words)
            for it, words in later(story)
            if it.began
        ]
        found += readable(newest(marks, stories), (end - begin) / 60)
    return found


def later(story: Story) -> list[tuple[Attempt, str]]:
    """Each attempt after the first, with the words for its mark."""
    return [
        (it, words_for(it, before))
        for before, it in zip(story.tries, story.tries[1:], strict=False)
    ]


def words_for(attempt: Attempt, before: Attempt) -> str:
    place = f"from step {attempt.first_step:,}" if attempt.first_step else "from the beginning"
    place = place if attempt.trained else "(it did not get to a step)"
    reason = textwrap.shorten(before.reason, REASON_LENGTH, placeholder=" …")
    return f"attempt {attempt.number} {place}, after: {reason}"


def newest(marks: list[Mark], stories: Sequence[Story]) -> list[Mark]:
    several = sum(1 for story in stories if len(story.tries) > 1)
    return marks[-max(1, MOST_MARKS // max(1, several)) :]


def readable(marks: list[Mark], width: float) -> list[Mark]:
    """Attempts that took up at one place share a mark; of numbers that would touch, the first
    stays."""
    found: list[Mark] = []
    for mark in sorted(marks, key=lambda it: it.x):
        if found and found[-1].x == mark.x:
            found[-1].label = (
                f"{found[-1].label.split('-')[0]}-{mark.label}" if found[-1].label else ""
            )
            found[-1].words += f"; {mark.words}"
            continue
        labelled = [it.x for it in found if it.label]
        if labelled and mark.x - labelled[-1] < CLOSE * width:
            mark.label = ""
        found.append(mark)
    return found


def layers(colour: Any, numbered: bool) -> tuple[list[Any], list[Any]]:
    """What lies under the points, and what lies over them: a rule one pixel wide could not be
    pointed at."""
    import altair as alt

    base = alt.Chart(alt.NamedData(name="marks")).encode(x="x:Q", color=colour)
    rule = base.mark_rule(strokeWidth=1, strokeDash=[4, 3], opacity=0.9)
    number = base.mark_text(baseline="bottom", dy=-3, fontSize=11).encode(
        y=alt.value(0), text="label:N"
    )
    target = base.mark_rule(strokeWidth=11, opacity=0.001).encode(tooltip="words:N")
    return [rule], [*([number] if numbered else []), target]
