"""Which runs a verb works on: those that are named, or all runs of a study.

`wait`, `cancel`, `list`, `report` and `export` ask `select` first and then work on the list. Also
here is what they and `sweep` say about many runs at once: how many are in which state, and the exit
code of the worst. rampup.study is imported only where a study was named: it takes long to import.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from rampup.cli import output
from rampup.errors import OUTCOME_CODES, UsageError
from rampup.rundir import find
from rampup.rundir.files import RunDir
from rampup.runs.state import UNREADABLE, State, is_closed, observe, state_of, states_of
from rampup.schedulers.base import FRESH_S

if TYPE_CHECKING:
    from rampup.study.members import Study

NAMED = 10
"""So many runs that failed are named with their cause."""
BAD = ("failed", "timeout", "cancelled")
"""The worst first."""


class Selection(Struct, frozen=True):
    """The runs that a verb works on."""

    named: tuple[RunDir, ...] = ()
    study: "Study | None" = None

    def runs(self) -> list[RunDir]:
        """Return the runs. A study may get more while a verb works, so ask again."""
        return list(self.named) if self.study is None else self.study.runs()

    def is_being_started(self) -> bool:
        """Tell whether somebody still starts runs of it."""
        if self.study is None:
            return False
        from rampup.study.stop import is_being_started

        return is_being_started(self.study)


def select(
    wanted: Sequence[str | None],
    study: str | None,
    find_run: Callable[[str | None], RunDir] = find.find,
) -> Selection:
    """Resolve what was typed. A run of None is the latest; giving runs and a study is refused."""
    if study is None:
        return Selection(named=tuple(find_run(name) for name in wanted))
    if any(name is not None for name in wanted):
        raise UsageError(
            "give runs, or --study, not both", "rampup list --study STUDY shows its runs"
        )
    from rampup.study.members import find as find_study

    return Selection(study=find_study(study))


def select_to_read(wanted: Sequence[str], study: str | None = None) -> Selection:
    """Resolve the runs of a verb that only reads: each once, by default the latest."""
    default: Sequence[str | None] = (None,) if study is None else ()
    selection = select(wanted or default, study, find.find_to_read)
    unique = {run.path: run for run in selection.named}
    return Selection(tuple(unique.values()), selection.study)


def select_all(study: str | None) -> Selection:
    """Resolve what `list` looks at: the runs of a study, or all."""
    if study is None:
        return Selection(named=tuple(find.all_runs()))
    return select((), study)


def title(run: RunDir) -> str:
    """Return the words by which a verb names its run in the first line: `digits es2hh5`."""
    return f"{run.run.get('name') or find.parse_run_name(run)[0] or '?'} {run.id}"


def explain_unreadable(run: RunDir, as_json: bool) -> bool:
    """Say so where the files of a run are closed to this user, and return whether they are."""
    if not is_closed(run):
        return False
    state = state_of(run)
    if state.name != UNREADABLE:
        return False
    if as_json:
        name = find.parse_run_name(run)[0]
        facts = {"id": run.id, "dir": str(run.path), "name": name}
        output.emit_json({**facts, "state": state.name, "cause": state.cause})
    else:
        output.write(f"{title(run)}: {state.cause}")
    return True


# many runs at once --------------------------------------------------------------------------------


def states_by_run(runs: Iterable[RunDir], fresh_s: float = FRESH_S) -> dict[RunDir, State]:
    seen = [observe(run) for run in runs]
    found = states_of(seen, fresh_s)
    return {one.run: found[one.run.path] for one in seen}


def worst_exit_code(states: Iterable[State]) -> int:
    there = {state.name for state in states}
    return next((OUTCOME_CODES[name] for name in BAD if name in there), 0)


def report_states(states: Mapping[RunDir, State]) -> None:
    """Say how many runs are in which state; name those that failed, with the cause in one line."""
    found = Counter(state.name for state in states.values())
    order = ("completed", "running", "pending", *BAD, UNREADABLE)
    spoken = {"timeout": "timed out", UNREADABLE: "not readable"}
    words = [f"{found[name]} {spoken.get(name, name)}" for name in order if found[name]]
    output.say(f"{output.count(len(states), 'run')}: {', '.join(words)}")
    bad = [(run, state) for run, state in states.items() if state.name in ("failed", "timeout")]
    for run, state in bad[:NAMED]:
        output.say(f"  {run.id} {state.name}: {cause_in_one_line(run, state)}")
    if len(bad) > NAMED:
        output.say(f"  and {len(bad) - NAMED} more")


def cause_in_one_line(run: RunDir, state: State) -> str:
    """Return the cause that `rampup why` gives."""
    from rampup.diagnose.why.explain import explain  # not for runs that went well

    answer = explain(run, state)
    cause = answer.finding.cause if answer.known else state.cause or state_of(run).cause
    return " ".join(cause.split()) or "cause unknown"


def states_json(states: Mapping[RunDir, State]) -> list[dict[str, Any]]:
    return [
        {
            "id": run.id,
            "dir": str(run.path),
            "point": run.run.get("point"),
            "state": state.name,
            "cause": state.cause,
        }
        for run, state in states.items()
    ]
