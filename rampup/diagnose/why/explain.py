"""Why a run ended, in plain words, with the evidence and a remedy: the answer of `rampup why`.

`explain` collects the clues of the last attempt (clues.py) and takes the first problem of
problems.toml that they match; wording.py fills in the values of the run. It is called by `why` and
`show`, by the report, and at the end of a run that failed. It changes nothing, and where only a
general problem matches, the answer is that the cause is not known and where to look.
"""

import functools
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from rampup.core.finding import Finding
from rampup.diagnose.why.clues import ERRORS, Case, Clue, Source, collect
from rampup.diagnose.why.logs import clean
from rampup.diagnose.why.wording import Words
from rampup.rundir.files import AttemptDir, RunDir
from rampup.runs.state import State, state_of

PROBLEMS_FILE = Path(__file__).with_name("problems.toml")
EARLIER_ATTEMPTS = 3
EVIDENCE_LINES = 5
LONGEST_SENTENCE = 450
SPECIAL = frozenset(r".^$*+?{}[]\|()")
"""What makes a pattern more than plain text."""


class Answer(NamedTuple):
    """Why a run ended. In `finding`, `about` is the state of the run."""

    finding: Finding
    known: bool = True
    rank: int | None = None
    """The rank that failed first."""
    attempt: int | None = None
    evidence: tuple[Clue, ...] = ()
    before: tuple[str, ...] = ()
    """Why earlier attempts ended."""


Signs = Mapping[Source, str | tuple[str, ...]]
"""Regular expressions: one of them must match a clue from that source."""


class Problem(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One way in which runs end; the head of problems.toml describes the fields."""

    id: str
    signs: Signs
    cause: str
    remedy: str = ""
    also: Signs = {}
    example: Mapping[Source, str] = {}
    known: bool = True
    harmless: bool = False


class Sign(NamedTuple):
    """A clue that matches a sign, with the named groups that matched something."""

    clue: Clue
    groups: dict[str, str]


class Match(NamedTuple):
    """A problem, with the clues that match its signs and the named groups."""

    problem: Problem
    groups: dict[str, str]
    clues: tuple[Clue, ...]


def explain(run: RunDir, state: State | None = None) -> Answer:
    """Say why a run in that state ended; without a state, look it up."""
    state = state or state_of(run)
    attempt = run.last_attempt()
    number, before = attempt.number if attempt else None, tuple(_explain_earlier(run, state))
    case = collect(run, attempt, state)
    match = find_match(case.clues, read_problems()) if state.name != "pending" else None
    if match is None:
        return Answer(_nothing_wrong(state), attempt=number, before=before)
    problem = match.problem
    remedy = problem.remedy.format_map(Words(case, match.groups, quoted=True))
    finding = Finding(
        problem.id,
        "ok" if problem.harmless else "problem",
        state.name,
        clean(_write_cause(case, match), LONGEST_SENTENCE),
        clean(remedy, LONGEST_SENTENCE),
    )
    evidence = _pick_evidence(case, match.clues)
    return Answer(finding, problem.known, case.suspect.rank, number, evidence, before)


def _write_cause(case: Case, match: Match) -> str:
    return match.problem.cause.format_map(Words(case, match.groups, quoted=False))


def _pick_evidence(case: Case, matched: tuple[Clue, ...]) -> tuple[Clue, ...]:
    """Return the clues that matched, how the rank ended, and the last line that it wrote."""
    errors = [clue for clue in case.clues if clue.source in ERRORS][-1:]
    ends = [*(clue for clue in case.clues if clue.source == "exit"), *errors]
    last = [case.last_line] if case.last_line else []
    found: dict[tuple[str, str | int], Clue] = {}
    for clue in (*matched, *ends, *last):
        is_bare = clue.source == "state" and clue.text.rstrip().endswith(":")  # without a cause
        if clue.file and clue.source != "ranks" and not is_bare:
            found.setdefault((clue.file, clue.line or clue.text), clue)
    return tuple(found.values())[:EVIDENCE_LINES]


def _nothing_wrong(state: State) -> Finding:
    if state.name == "running":
        return Finding("running", "ok", state.name, "it has not ended: it is running")
    if state.name == "pending":
        cause = f"it has not ended: {clean(state.cause) or 'it is being started'}"
        return Finding("pending", "ok", state.name, cause)
    return Finding("completed", "ok", state.name, "nothing went wrong: the run completed")


def _explain_earlier(run: RunDir, state: State) -> Iterator[str]:
    """Yield why earlier attempts ended. If the run has not ended, that may include the last one."""
    attempts = run.attempts()[:-1] if state.ended else run.attempts()
    for attempt in attempts[-EARLIER_ATTEMPTS:]:
        facts = attempt.facts
        # not the first half of a trial
        if "ended" in facts and (facts.get("exit_code") != 0 or facts.get("why")):
            yield f"attempt {attempt.number}: {_explain_attempt(run, attempt)}"


def _explain_attempt(run: RunDir, attempt: AttemptDir) -> str:
    facts = attempt.facts
    failed = State("failed", facts.get("exit_code"), str(facts.get("cause") or ""))
    case = collect(run, attempt, failed)
    match = find_match(case.clues, read_problems())
    return clean(_write_cause(case, match)) if match else "not known"


# problems.toml ------------------------------------------------------------------------------------


@functools.cache
def read_problems() -> tuple[Problem, ...]:
    """Return the problems that rampup knows. The file is read when the first run is explained."""
    return parse_problems(PROBLEMS_FILE.read_text(encoding="utf-8"))


def parse_problems(text: str) -> tuple[Problem, ...]:
    """Return the problems of a TOML text in order; a ValueError names the one that is wrong."""
    tables = tomllib.loads(text)
    rows = tables.pop("problem", [])
    if tables:
        raise ValueError(f"only [[problem]] is allowed here, not {', '.join(tables)}")
    return tuple(_parse_problem(row) for row in rows)


def _parse_problem(row: dict[str, Any]) -> Problem:
    try:
        return msgspec.convert(row, Problem)
    except msgspec.ValidationError as error:
        raise ValueError(f"problem {row.get('id')!r}: {error}") from None


def find_match(clues: Iterable[Clue], problems: Iterable[Problem]) -> Match | None:
    """Return the first problem whose signs match the clues."""
    by_source: dict[Source, list[Clue]] = {}
    for clue in clues:
        by_source.setdefault(clue.source, []).append(clue)
    for problem in problems:
        sign = _find_sign(problem.signs, by_source)
        other = _find_sign(problem.also, by_source) if sign and problem.also else None
        if sign is None or (problem.also and other is None):
            continue
        if other is None:
            return Match(problem, sign.groups, (sign.clue,))
        clues = tuple(dict.fromkeys((sign.clue, other.clue)))
        return Match(problem, other.groups | sign.groups, clues)
    return None


def _find_sign(signs: Signs, by_source: Mapping[Source, list[Clue]]) -> Sign | None:
    """Return the clue that matches the first sign. If several do, it is the last one: a log tells
    at its end how it ended."""
    for source, sign in signs.items():
        patterns = (sign,) if isinstance(sign, str) else sign
        for clue in reversed(by_source.get(source, [])):
            for pattern in patterns:
                groups = _search(pattern, clue.text)
                if groups is not None:
                    return Sign(clue, groups)
    return None


def _search(pattern: str, text: str) -> dict[str, str] | None:
    """Return the named groups that matched something; None if the pattern does not match."""
    plain = pattern.removeprefix("^")
    if SPECIAL.isdisjoint(plain):  # most are plain text, and compiling them takes milliseconds
        there = plain in text if plain == pattern else text.startswith(plain)
        return {} if there else None
    found = re.search(pattern, text)
    if found is None:
        return None
    return {name: group for name, group in found.groupdict().items() if group}
