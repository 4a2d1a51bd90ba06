"""Why a run ended, in a person's words, with the evidence and what helps: the answer of `rampup
why`.

`explain` gathers the clues of the last attempt (why_clues.py) and takes the first row of the tables
(why_endings.py, why_errors.py) that one of them fits. Read by `why`, `show` and the last words of
`run`. It changes nothing, and where no row fits, it says that the cause is not known and where to
look.
"""

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from rampup.core.finding import Finding, Level
from rampup.diagnose.why.clues import Case, gather
from rampup.diagnose.why.endings import ENDINGS
from rampup.diagnose.why.errors import ERRORS
from rampup.diagnose.why.logs import clean
from rampup.diagnose.why.problems import Clue, Kind, Problem
from rampup.diagnose.why.wording import Words
from rampup.rundir.files import AttemptDir, RunDir
from rampup.runs.state import State, state_of

PROBLEMS: tuple[Problem, ...] = (*ENDINGS, *ERRORS)
EARLIER = 3
"""Attempts before the last one that are told."""
EVIDENCE_LINES = 5
LONGEST_SENTENCE = 450


class Answer(NamedTuple):
    finding: Finding
    """`cause` is the sentence, `remedy` what helps; `about` is the state of the run."""
    known: bool = True
    rank: int | None = None
    """Who failed first."""
    attempt: int | None = None
    evidence: tuple[Clue, ...] = ()
    before: tuple[str, ...] = ()
    """Why earlier attempts ended."""


def explain(run: RunDir, state: State | None = None) -> Answer:
    """The answer for a run in that state, which is looked up when nobody has yet."""
    state = state or state_of(run)
    attempt = run.last_attempt()
    number, before = attempt.number if attempt else None, tuple(_earlier(run, state))
    case = gather(run, attempt, state)
    found = match(case.clues, PROBLEMS) if state.name != "pending" else None
    if found is None:
        return Answer(_nothing_wrong(state), attempt=number, before=before)
    problem, groups, fitting = found
    cause = problem.cause.format_map(Words(case, groups, quoted=False))
    remedy = problem.remedy.format_map(Words(case, groups, quoted=True))
    level: Level = "ok" if problem.harmless else "problem"
    finding = Finding(
        problem.id,
        level,
        state.name,
        clean(cause, LONGEST_SENTENCE),
        clean(remedy, LONGEST_SENTENCE),
    )
    return Answer(finding, problem.known, case.first.rank, number, _evidence(case, fitting), before)


def match(
    clues: Iterable[Clue], problems: Iterable[Problem]
) -> tuple[Problem, dict[str, str], tuple[Clue, ...]] | None:
    """The first problem that the clues fit, the named groups of its expressions, and those
    clues."""
    listed = list(clues)
    for problem in problems:
        first = _fitting(problem.signs, listed)
        second = _fitting(problem.also, listed) if problem.also else None
        if first and (second or not problem.also):
            both = [found for found in (second, first) if found]
            groups = {
                name: text for found in both for name, text in found[1].groupdict().items() if text
            }
            return problem, groups, tuple(dict.fromkeys(found[0] for found in reversed(both)))
    return None


def _fitting(signs: Mapping[Kind, str], clues: list[Clue]) -> tuple[Clue, re.Match[str]] | None:
    """The first sign that a clue fits. Of several such clues the last: a log tells at its end how
    it ended."""
    for kind, pattern in signs.items():
        for clue in reversed(clues):
            found = re.search(pattern, clue.text) if clue.kind == kind else None
            if found:
                return clue, found
    return None


def _evidence(case: Case, fitting: tuple[Clue, ...]) -> tuple[Clue, ...]:
    """What fitted, how the rank ended, and what it said last."""
    more = [clue for clue in case.clues if clue.kind in ("exit", "error", "said")]
    last = [case.last_line] if case.last_line else []
    found: dict[tuple[str, str | int], Clue] = {}
    for clue in (*fitting, *more, *last):
        if clue.file and clue.kind != "world":
            found.setdefault((clue.file, clue.line or clue.text), clue)
    return tuple(found.values())[:EVIDENCE_LINES]


def _nothing_wrong(state: State) -> Finding:
    if state.name == "running":
        return Finding("running", "ok", state.name, "it has not ended: it is running")
    if state.name == "pending":
        return Finding(
            "pending",
            "ok",
            state.name,
            f"it has not ended: {clean(state.cause) or 'it is being started'}",
        )
    return Finding("completed", "ok", state.name, "nothing went wrong: it did all its work")


def _earlier(run: RunDir, state: State) -> Iterable[str]:
    """Of a run that goes on, or waits for that, the last attempt may have ended too."""
    attempts = run.attempts()[:-1] if state.ended else run.attempts()
    for attempt in attempts[-EARLIER:]:
        facts = attempt.facts
        # not the first half of a trial
        if "ended" in facts and (facts.get("exit_code") != 0 or facts.get("why")):
            yield f"attempt {attempt.number}: {_cause_of(run, attempt)}"


def _cause_of(run: RunDir, attempt: AttemptDir) -> str:
    facts = attempt.facts
    case = gather(
        run, attempt, State("failed", facts.get("exit_code"), str(facts.get("cause") or ""))
    )
    found = match(case.clues, PROBLEMS)
    return (
        clean(found[0].cause.format_map(Words(case, found[1], quoted=False)))
        if found
        else "not known"
    )
