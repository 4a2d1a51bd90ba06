"""The clues that tell why an attempt ended, each with the file and the line where it was found.

`collect` gathers them for explain.py: the state of the run, exit codes, error-<r>.json, the logs of
the ranks and of Slurm, control.jsonl, and what measured.py finds. Of the ranks it reads only the
one that failed first, because the others fell with it. It never judges: which clue means what
is in problems.toml. Clues are read or measured, never guessed.
"""

import os
import pwd
import re
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from rampup.config.clusters import of_run
from rampup.diagnose.why.logs import (
    MESSAGE_LINES,
    Frame,
    Line,
    Trace,
    clean,
    find_fatal_error,
    find_traces,
    find_users_frame,
    is_in_package,
    is_passed_on,
    pick_telling,
    read_tail,
    split_lines,
)
from rampup.diagnose.why.measured import (
    Sign,
    find_apart_ranks,
    find_full_memory,
    find_lost_losses,
    find_silence,
)
from rampup.errors import RampupError
from rampup.rundir import failures as causes
from rampup.rundir import schema as shapes
from rampup.rundir.failures import FirstFailure
from rampup.rundir.files import AttemptDir, RunDir
from rampup.rundir.records import Record, read_jsonl
from rampup.rundir.trust import is_obeyed
from rampup.runs.state import State
from rampup.schedulers import find_scheduler

NEAR_THE_END_LINES = 15
"""A traceback that more lines follow did not end the program."""
LAST_LINES = 40
MAX_RANKS_READ = 64
REASON_BELOW = "Graph execution error:"
"""TensorFlow's first line: the reason follows below the calls that made the graph."""
PYTHON_FAILED = 1
"""Python's exit code after an exception that the program did not catch."""
MISSING_MODULE = re.compile(r"No module named '(?P<name>[^']+)'")
MISSING_FILE = re.compile(r"No such file or directory: '(?P<path>[^']+)'")

Source = Literal[
    "state",
    "slurm-state",
    "slurm-log",
    "restart",
    "cancel",
    "ranks",
    "metric",
    "memory",
    "silence",
    "apart",
    "exit",
    "exception",
    "rampup-error",
    "rank-log",
    "left-out",
]
"""Where a clue comes from; the head of problems.toml describes each."""
ERRORS: tuple[Source, ...] = ("exception", "rampup-error")


class Clue(NamedTuple):
    """A text that may tell why a run ended, and where it stands."""

    source: Source
    text: str
    file: str = ""
    """Relative to the run directory."""
    line: int | None = None


class Case(NamedTuple):
    """An attempt with its clues; or a run that has no attempt, with its state."""

    run: RunDir
    state: State
    attempt: AttemptDir | None
    facts: Record
    config: Record
    clues: list[Clue]
    suspect: FirstFailure = FirstFailure()
    """The rank that failed first."""
    place: Frame | None = None
    """Where it failed, in the user's own code."""
    in_package: bool = False
    """Whether an installed package raised the error, which that line called."""
    last_line: Clue | None = None
    """The last line of its log."""


def collect(run: RunDir, attempt: AttemptDir | None, state: State) -> Case:
    """Return the clues that count in that state: a log is not evidence against a run that is still
    running or that completed."""
    facts = attempt.facts if attempt else {}
    clues = list(_state_clues(run, attempt, state, facts))
    if attempt is not None and state.name in ("running", "timeout"):
        until = facts.get("ended") or time.time()
        clues += _as_clues(run, "silence", find_silence(attempt, until))
    if attempt is not None and state.name in ("failed", "completed"):
        clues += _as_clues(run, "metric", find_lost_losses(attempt))
    if attempt is not None:
        clues += _as_clues(run, "apart", find_apart_ranks(run, attempt, state))
    by_rampup = any(clue.source == "cancel" for clue in clues)
    if attempt is not None and state.name == "cancelled" and not by_rampup:
        clues += _canceller(run, facts)
    case = Case(run, state, attempt, facts, run.config, clues)
    return _add_failure(case, attempt) if attempt and state.name == "failed" else case


def _as_clues(run: RunDir, source: Source, signs: Iterable[Sign]) -> Iterator[Clue]:
    for sign in signs:
        yield Clue(source, sign.text, _inside(run, sign.file), sign.line)


def _add_failure(case: Case, attempt: AttemptDir) -> Case:
    run = case.run
    suspect, lines = _find_suspect(attempt, case.facts)
    log = attempt.rank_log(suspect.rank or 0)
    printed = find_traces(lines)
    slurm_log = list(_slurm_log(run, attempt, case.facts))
    rank_log = list(_rank_log(suspect, lines, printed, _inside(run, log)))
    clues = [
        *case.clues,
        *_as_clues(run, "memory", find_full_memory(attempt)),
        *slurm_log,
        *_exit(run, attempt, case.facts, suspect, slurm_log),
        *_recorded_error(run, attempt, suspect),
        *rank_log,
    ]
    clues += _left_out(run, case.config, clues)
    recorded = find_traces(split_lines(suspect.error.get("traceback", "")))
    traces = recorded or find_fatal_error(lines) or printed
    place = find_users_frame(traces, _users_folders(run, case.config))
    last_line = rank_log[-1] if lines else None
    return case._replace(
        clues=clues,
        suspect=suspect,
        place=place,
        in_package=is_in_package(pick_telling(traces)),
        last_line=last_line,
    )


# the rank that failed first -----------------------------------------------------------------------


def _find_suspect(attempt: AttemptDir, facts: Record) -> tuple[FirstFailure, list[Line]]:
    """Return the rank that the launcher suspects, with the end of its log; another rank, if that
    log shows that the suspect only lost contact with it.

    Where the launcher's record is lost, no rank is suspected, and all logs are read."""
    first = causes.find_first_failure(attempt, facts.get("failed_rank"), facts.get("exit_code"))
    lines = read_tail(attempt.rank_log(first.rank)) if first.rank is not None else []
    recorded = bool(facts) or first.rank is not None
    if first.error or (recorded and not _lost_a_peer(lines)):
        return first, lines
    world_size = facts.get("world_size", 0) if facts else MAX_RANKS_READ
    for rank in range(min(MAX_RANKS_READ, world_size)):
        if rank == first.rank:
            continue
        other_lines = read_tail(attempt.rank_log(rank))
        if find_traces(other_lines) and not _lost_a_peer(other_lines):
            return FirstFailure(rank), other_lines
    return first, lines


def _lost_a_peer(lines: list[Line]) -> bool:
    trace = pick_telling(find_traces(lines))
    if trace is None:
        return False
    reason = [trace.error]
    if trace.after and trace.error.text.endswith(REASON_BELOW):
        reason += lines[-trace.after :]
    return any(causes.LOST_PEER.search(line.text) for line in reason)


# the whole attempt --------------------------------------------------------------------------------


def _state_clues(
    run: RunDir, attempt: AttemptDir | None, state: State, facts: Record
) -> Iterator[Clue]:
    """Yield what the launcher, Slurm and the command line recorded about the whole attempt."""
    file = _inside(run, attempt.facts_file) if attempt and "outcome" in facts else ""
    yield Clue("state", f"{state.name}: {clean(state.cause)}", file)
    yield Clue("ranks", f"{facts.get('world_size') or 1} ranks", file)
    if facts.get("why"):
        yield Clue("restart", clean(str(facts["why"])), file)
    control, last = _inside(run, run.control_file), run.last_attempt()
    is_last = attempt is None or last is None or attempt.number == last.number
    for number, row in enumerate(read_jsonl(run.control_file), start=1):
        record = shapes.drop_foreign(row, shapes.CONTROL)
        if record.get("t", 0.0) <= facts.get("started", 0.0):
            continue
        if record.get("what") == "ended" and is_last:
            yield Clue("slurm-state", clean(str(record.get("state"))), control, number)
        if record.get("what") == "cancelled" and state.name == "cancelled":
            yield Clue("cancel", clean(str(record.get("by"))), control, number)


def _slurm_log(run: RunDir, attempt: AttemptDir, facts: Record) -> Iterator[Clue]:
    """Yield the lines of Slurm's log that belong to this attempt, numbered as in the whole file."""
    if "job" not in facts:
        return
    log = run.slurm_log(facts["job"])
    lines = read_tail(log)
    begins = _find_lines(lines, f"rampup: attempt {attempt.number} ")
    ends = _find_lines(lines, f"rampup: attempt {attempt.number + 1} ")
    begin, end = begins[-1] if begins else 0, ends[0] if ends else None
    for line in lines[begin:end]:
        yield Clue("slurm-log", line.text, _inside(run, log), line.number)


def _find_lines(lines: list[Line], start: str) -> list[int]:
    return [index for index, line in enumerate(lines) if line.text.startswith(start)]


def _canceller(run: RunDir, facts: Record) -> Iterator[Clue]:
    """Yield the user who ended a job that rampup did not cancel, where the scheduler keeps
    accounts."""
    submitted = run.recorded("submitted") or {}
    job = facts.get("job") or submitted.get("job")
    if "job" not in submitted or not job:
        return
    try:
        cluster = of_run(
            submitted.get("cluster", ""), run.config.get("cluster", {}), is_obeyed(run)
        )
        canceller = find_scheduler(cluster.scheduler).find_canceller(cluster, job)
    except RampupError:  # no scheduler here, or its profile is gone
        return
    if canceller is not None:
        text = f"user {_user_name(canceller.user)} ended the job with {canceller.command}"
        yield Clue("cancel", text, canceller.source)


def _user_name(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


# the rank that failed -----------------------------------------------------------------------------


def _exit(
    run: RunDir, attempt: AttemptDir, facts: Record, suspect: FirstFailure, slurm_log: list[Clue]
) -> Iterator[Clue]:
    """Yield how the rank ended: as the local launcher recorded it, or as srun reported it."""
    facts_file = _inside(run, attempt.facts_file)
    if suspect.rank is None or suspect.code is None:
        if facts.get("exit_code") is not None:
            yield Clue("exit", f"code {facts['exit_code']} of the job", facts_file)
        return
    name = causes.signal_name(suspect.code)
    how = f"signal {suspect.code - 128} ({name})" if name else f"code {suspect.code}"
    text = f"{how} of rank {suspect.rank}"
    for clue in slurm_log:
        srun = causes.SRUN.search(clue.text)
        if srun and suspect.rank in causes.parse_ranks(srun["ranks"]):
            yield Clue("exit", f"{text}: {clue.text}", clue.file, clue.line)
            return
    yield Clue("exit", text, facts_file)


def _recorded_error(run: RunDir, attempt: AttemptDir, suspect: FirstFailure) -> Iterator[Clue]:
    """Yield what the rank left in error-<r>.json: an exception of the program, or an error of
    rampup, which has a hint."""
    if not suspect.error:
        return
    kind = str(suspect.error.get("type"))
    first, *rest = str(suspect.error.get("message")).split("\n")
    message, file = clean(first), _inside(run, attempt.error_file(suspect.rank or 0))
    if kind == "NotReady" or suspect.error.get("hint"):
        yield Clue("rampup-error", message, file)
    else:
        for line in reversed(rest[:MESSAGE_LINES]):
            yield Clue("exception", clean(line), file)
        yield Clue("exception", f"{kind}: {message}" if message else kind, file)


def _rank_log(
    suspect: FirstFailure, lines: list[Line], printed: list[Trace], log: str
) -> Iterator[Clue]:
    """Yield the exception that ended the program, and the last lines of the log. The rest of a
    message comes first: the last clue that matches counts, and the first line says most."""
    trace = pick_telling(printed)
    if trace is not None and not suspect.error:
        raised = suspect.code in (PYTHON_FAILED, None) or trace.after == 0
        near = trace.after <= NEAR_THE_END_LINES or is_passed_on(trace, printed)
        if raised and near:
            for line in reversed(trace.message):
                yield Clue("exception", line.text, log, line.number)
            yield Clue("exception", trace.error.text, log, trace.error.number)
    for line in lines[-LAST_LINES:]:
        yield Clue("rank-log", line.text, log, line.number)


# the copy of the code -----------------------------------------------------------------------------


def _left_out(run: RunDir, config: Record, clues: Iterable[Clue]) -> Iterator[Clue]:
    """Yield the module or file that the program did not find, if it is in the user's folder but not
    in the copy of the code."""
    errors = " ".join(clue.text for clue in clues if clue.source in ERRORS)
    module, file = MISSING_MODULE.search(errors), MISSING_FILE.search(errors)
    original = _copied_folder(run, config) if module or file else None
    if original is None:
        return
    if module:
        name = module["name"].partition(".")[0]
        # anything else would be a pattern
        folders = (original, original.parent) if name.isidentifier() else ()
        for path in _find_module(name, folders):
            in_folder = path.is_relative_to(original)
            if not in_folder or not (run.code / path.relative_to(original)).exists():
                yield Clue("left-out", f"{clean(str(path))} is not in the copy")
                return
    wanted = os.path.normpath(file["path"]) if file else ""
    if wanted.startswith(f"{run.path}{os.sep}"):
        meant = Path(os.path.normpath(original / os.path.relpath(wanted, run.code)))
        if meant.exists():
            yield Clue("left-out", f"{clean(str(meant))} is not in the copy")


def _find_module(name: str, folders: Iterable[Path]) -> list[Path]:
    forms = (f"{name}.py", name, f"*/{name}.py")
    return [path for folder in folders for form in forms for path in folder.glob(form)]


def _copied_folder(run: RunDir, config: Record) -> Path | None:
    """Return the folder that the copy of the code was made from; None where nothing was copied."""
    from rampup.runs.code import script_index  # only for a file or module that is missing

    command, argv = config.get("command") or [], config.get("argv") or []
    index = script_index(command) if command else None
    if index is None or index >= len(argv) or not argv[index].startswith(f"{run.code}{os.sep}"):
        return None
    inner = os.path.relpath(argv[index], run.code)
    script = os.path.normpath(Path(config.get("cwd") or ".") / command[index])
    return Path(script.removesuffix(inner)) if script.endswith(f"{os.sep}{inner}") else None


def _users_folders(run: RunDir, config: Record) -> list[Path]:
    """Return the folders of the user's own code."""
    return [run.code, *(Path(config[key]) for key in ("folder", "cwd") if config.get(key))]


def _inside(run: RunDir, path: Path) -> str:
    return str(path.relative_to(run.path))
