"""The section on attempts: of a run that took several, what each did, and what the interruptions
cost.

Pure: from the story of one run to HTML. Called by sections.py; a run of one attempt has no such
section.
"""

from rampup.report.story import Story
from rampup.report.template import text
from rampup.report.words import cut, duration, html_table
from rampup.rundir.history import Attempt, effective_ratio

EFFECTIVE = (
    "the part of all time, from the first start to the last word, that went into steps that count. The rest is "
    "starting up, work done twice, and waiting between attempts."
)


def effective(story: Story) -> str | None:
    ratio = effective_ratio(story.tries) if len(story.tries) > 1 else None
    return f"{ratio:.0%}" if ratio is not None else None


def attempts_table(story: Story) -> str:
    """Of a run that took several: what each did, and what the interruptions cost."""
    if len(story.tries) < 2:
        return ""
    head = ("attempt", "from step", "to step", "redone", "took", "ended", "resumed")
    rows = [attempt_row(attempt, story) for attempt in story.tries]
    redone, lost_s = sum(it.redone for it in story.tries), sum(it.lost_s for it in story.tries)
    cost = "No step is known to have been redone."
    if redone:
        cost = f"{redone:,} {'steps were' if redone > 1 else 'step was'} redone, {duration(lost_s)} of work."
    ratio, so_far = effective(story), "" if story.state.ended else " so far"
    meaning = f" Effective training time{so_far}: {ratio}, {EFFECTIVE}" if ratio else ""
    return f"<div class='wide'>{html_table(head, rows, 'tries')}</div><p class='small'>{text(cost + meaning)}</p>"


def attempt_row(attempt: Attempt, story: Story) -> list[str]:
    goes_on = attempt is story.tries[-1] and not story.state.ended
    why = f": {attempt.cause}" if attempt.cause and attempt.how == "failed" else ""
    ended = story.state.name if goes_on else f"{attempt.how}{cut(why, 200)}"
    resumed = {None: "", True: "bit for bit", False: "not bit for bit"}[attempt.exact]
    steps = [f"{attempt.first_step:,}", f"{attempt.last_step:,}"] if attempt.trained else ["-", "-"]
    took = duration(attempt.took_s) if attempt.took_s is not None else "-"
    return [
        text(cell) for cell in (attempt.number, *steps, f"{attempt.redone:,}", took, ended, resumed)
    ]
