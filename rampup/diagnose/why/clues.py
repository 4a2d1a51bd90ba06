"""What an attempt left behind that can tell why it ended: clues, each with the file and the line
where it stands.

Gathered for `rampup why` from exit codes, error-<r>.json, the logs of the ranks and of Slurm,
control.jsonl, metrics and samples. Collects only; which clue means what stands in why_endings.py
and why_errors.py. Of the ranks only the one that failed first is heard: the others fell because of
it.
"""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rampup.diagnose.why import signs as why_signs
from rampup.diagnose.why.logs import (
    Frame,
    Line,
    Trace,
    clean,
    fatal_in,
    last_of,
    lines_of,
    tail,
    traces_in,
    users_frame,
)
from rampup.diagnose.why.problems import Clue
from rampup.rundir import failures as causes
from rampup.rundir import schema as shapes
from rampup.rundir.failures import FirstFailure
from rampup.rundir.files import AttemptDir, RunDir, State
from rampup.rundir.records import Record, read_jsonl

NEAR_THE_END = 15
"""A traceback with more lines after it is not what ended the program."""
LAST_LINES = 40
RANKS_HEARD = 64
REASON_BELOW = "Graph execution error:"
"""TensorFlow's first line. What was wrong stands under the calls that made the graph."""
PYTHON_FAILED = 1
"""What Python ends with after an exception that nobody caught."""


class Case(NamedTuple):
    """An attempt that ended; or a run that has none, with its state."""

    run: RunDir
    state: State
    attempt: AttemptDir | None
    facts: Record
    config: Record
    first: FirstFailure
    """The rank that failed first."""
    place: Frame | None
    """Where in the user's own code."""
    last_line: Clue | None
    """What that rank said last."""
    clues: list[Clue]


def gather(run: RunDir, attempt: AttemptDir | None, state: State) -> Case:
    """The clues that count in that state: a log is no evidence against a run that goes on or ended
    well."""
    facts, config = attempt.facts if attempt else {}, run.config
    clues = list(_of_state(run, attempt, state, facts))
    if attempt is None or state.name == "pending":
        return Case(run, state, attempt, facts, config, FirstFailure(), None, None, clues)
    if state.name in ("running", "timeout"):
        clues += why_signs.silence(run, attempt, facts.get("ended") or time.time())
    if state.name in ("failed", "completed"):
        clues += why_signs.metrics(run, attempt)
    if state.name == "cancelled" and not any(clue.kind == "cancel" for clue in clues):
        clues += why_signs.cancelled_in_slurm(run, facts)
    if state.name != "failed":
        return Case(run, state, attempt, facts, config, FirstFailure(), None, None, clues)
    return _of_failure(
        Case(run, state, attempt, facts, config, FirstFailure(), None, None, clues), attempt
    )


def _of_failure(case: Case, attempt: AttemptDir) -> Case:
    run, first = case.run, _first_with_words(attempt, case.facts)
    log = attempt.rank_log(first.rank or 0)
    lines = tail(log) if first.rank is not None else []
    said = traces_in(lines)
    clues = [
        *case.clues,
        *why_signs.memory(run, attempt),
        *_of_slurm(run, attempt, case.facts),
        *_of_exit(run, attempt, case.facts, first),
        *_of_error(run, attempt, first),
        *_of_log(first, lines, last_of(said), inside(run, log)),
    ]
    clues += why_signs.left_out(run, case.config, clues)
    traces = traces_in(lines_of(first.error.get("traceback", ""))) or fatal_in(lines) or said
    place = users_frame(traces, why_signs.folders(run, case.config))
    last_line = Clue("log", lines[-1].text, inside(run, log), lines[-1].number) if lines else None
    return case._replace(first=first, place=place, last_line=last_line, clues=clues)


# who failed first ---------------------------------------------------------------------------------


def _first_with_words(attempt: AttemptDir, facts: Record) -> FirstFailure:
    """The launcher's suspect, unless its log tells that it only lost contact with another rank.

    Where what the launcher wrote down is lost, nobody is suspected, and all logs are asked."""
    first = causes.find_first_failure(attempt, facts.get("failed_rank"), facts.get("exit_code"))
    known = bool(facts) or first.rank is not None
    if first.error or (known and not _lost_a_peer(attempt, first.rank)):
        return first
    for rank in range(min(RANKS_HEARD, facts.get("world_size", 0) if facts else RANKS_HEARD)):
        if (
            rank != first.rank
            and last_of(traces_in(tail(attempt.rank_log(rank))))
            and not _lost_a_peer(attempt, rank)
        ):
            return FirstFailure(rank)
    return first


def _lost_a_peer(attempt: AttemptDir, rank: int | None) -> bool:
    lines = tail(attempt.rank_log(rank)) if rank is not None else []
    trace = last_of(traces_in(lines))
    if trace is None:
        return False
    below = lines[-trace.after :] if trace.after and trace.error.text.endswith(REASON_BELOW) else []
    return any(causes.LOST_PEER.search(line.text) for line in (trace.error, *below))


# clues --------------------------------------------------------------------------------------------


def _of_state(
    run: RunDir, attempt: AttemptDir | None, state: State, facts: Record
) -> Iterator[Clue]:
    """What is said of the attempt as a whole, by its launcher, by Slurm and by the command line."""
    file = inside(run, attempt.facts_file) if attempt and "outcome" in facts else ""
    yield Clue("state", f"{state.name}: {clean(state.cause)}", file)
    yield Clue("world", f"{facts.get('world_size') or 1} ranks", file)
    if facts.get("why"):
        yield Clue("again", clean(str(facts["why"])), file)
    control, last = inside(run, run.control_file), run.last_attempt()
    for number, read in enumerate(read_jsonl(run.control_file), start=1):
        record = shapes.drop_foreign(read, shapes.CONTROL)
        what, later = record.get("what"), record.get("t", 0.0) > facts.get("started", 0.0)
        if (
            what == "ended"
            and later
            and (attempt is None or last is None or attempt.number == last.number)
        ):
            yield Clue("slurm-state", clean(str(record.get("state"))), control, number)
        if what == "cancelled" and later and state.name == "cancelled":
            yield Clue("cancel", clean(str(record.get("by"))), control, number)


def _of_slurm(run: RunDir, attempt: AttemptDir, facts: Record) -> Iterator[Clue]:
    """Slurm's log of this attempt; the numbers are those of the whole file."""
    if facts.get("launcher") != "srun":
        return
    log = run.slurm_log(facts.get("job", ""))
    lines = tail(log)
    begin = [
        index
        for index, line in enumerate(lines)
        if line.text.startswith(f"rampup: attempt {attempt.number} ")
    ]
    end = [
        index
        for index, line in enumerate(lines)
        if line.text.startswith(f"rampup: attempt {attempt.number + 1} ")
    ]
    for line in lines[begin[-1] if begin else 0 : end[0] if end else None]:
        yield Clue("slurm", line.text, inside(run, log), line.number)


def _of_exit(
    run: RunDir, attempt: AttemptDir, facts: Record, first: FirstFailure
) -> Iterator[Clue]:
    """How the rank ended: as the local launcher wrote it down, or as srun said it."""
    if first.rank is None or first.code is None:
        if facts.get("exit_code") is not None:
            yield Clue(
                "exit", f"code {facts['exit_code']} of the job", inside(run, attempt.facts_file)
            )
        return
    name = causes.signal_name(first.code)
    how = f"signal {first.code - 128} ({name})" if name else f"code {first.code}"
    for clue in _of_slurm(run, attempt, facts):
        srun = causes.SRUN.search(clue.text)
        if srun and first.rank in causes.parse_ranks(srun["ranks"]):
            yield Clue("exit", f"{how} of rank {first.rank}: {clue.text}", clue.file, clue.line)
            return
    yield Clue("exit", f"{how} of rank {first.rank}", inside(run, attempt.facts_file))


def _of_error(run: RunDir, attempt: AttemptDir, first: FirstFailure) -> Iterator[Clue]:
    """What the rank left in error-<r>.json: an exception of the program, or words of rampup with a
    hint."""
    if not first.error:
        return
    kind, message = (
        str(first.error.get("type")),
        clean(str(first.error.get("message")).split("\n")[0]),
    )
    file = inside(run, attempt.error_file(first.rank or 0))
    if kind == "NotReady" or first.error.get("hint"):
        yield Clue("said", message, file)
    else:
        yield Clue("error", f"{kind}: {message}" if message else kind, file)


def _of_log(
    first: FirstFailure, lines: list[Line], trace: Trace | None, log: str
) -> Iterator[Clue]:
    """The last lines, and of them the exception that ended the program."""
    raised = first.code in (PYTHON_FAILED, None) or (trace is not None and trace.after == 0)
    if trace is not None and trace.after <= NEAR_THE_END and raised and not first.error:
        yield Clue("error", trace.error.text, log, trace.error.number)
    for line in lines[-LAST_LINES:]:
        yield Clue("log", line.text, log, line.number)


def inside(run: RunDir, path: Path) -> str:
    return str(path.relative_to(run.path))
