"""`rampup why`: why a run ended, the evidence, and what helps."""

from typing import Any

import click

from rampup.cli import output
from rampup.cli.options import json_option, run_argument
from rampup.cli.selection import explain_unreadable, title
from rampup.diagnose.why.clues import Clue
from rampup.diagnose.why.explain import Answer, explain
from rampup.rundir import find as runs
from rampup.rundir.damage import find_damage
from rampup.rundir.files import RunDir


@click.command()
@run_argument
@json_option
def command(run: str | None, as_json: bool) -> int:
    """Explain why a run ended, with the evidence and what to do. RUN is an id or its first letters,
    a job id, a name or a path (default: the latest run of this directory).

    The first line names the run, the second the cause: that of the rank that failed first. Below it
    are the files and lines that show it, then one thing to do. If the cause is not known, the hint
    says where to look.
    """
    found = runs.find_to_read(run)
    if explain_unreadable(found, as_json):
        return 0
    answer = explain(found)
    if as_json:
        output.emit_json(as_object(found, answer))
        return 0
    output.write(f"{title(found)}: {answer.finding.about}")
    output.write(answer.finding.cause)
    for clue in answer.evidence:
        output.write(f"  {location(clue)}  {clue.text.strip()}".rstrip())
    for line in answer.before:
        output.write(line)
    if answer.finding.remedy:
        output.write(f"{output.paint('hint:', output.BOLD)} {answer.finding.remedy}")
    for words in find_damage(found):
        output.say(f"note: {words}")
    output.next_step(next_command(found, answer))
    return 0


def location(clue: Clue) -> str:
    return clue.file if clue.line is None else f"{clue.file}:{clue.line}"


def as_object(run: RunDir, answer: Answer) -> dict[str, Any]:
    finding = answer.finding
    return {
        "id": run.id,
        "state": finding.about,
        "problem": finding.id,
        "known": answer.known,
        "cause": finding.cause,
        "remedy": finding.remedy or None,
        "rank": answer.rank,
        "attempt": answer.attempt,
        "evidence": [
            {"file": clue.file, "line": clue.line, "text": clue.text} for clue in answer.evidence
        ],
        "before": list(answer.before),
        "damage": find_damage(run),
        "next": next_command(run, answer),
    }


def next_command(run: RunDir, answer: Answer) -> str:
    if answer.finding.about in ("running", "pending"):
        return f"rampup logs -f {run.id}"
    if answer.finding.level == "ok":
        return f"rampup show {run.id}"
    return f"rampup logs {run.id}" + (f" --rank {answer.rank}" if answer.rank else "")
