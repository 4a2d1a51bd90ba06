"""What `wait` and `cancel` do with --study, and the words about the runs of one that `sweep` and
`list` share too."""

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rampup.cli import output
from rampup.cli.cancel import END_WITHIN_S, SAVE_WITHIN_S
from rampup.cli.wait import POLL_S, patience
from rampup.errors import OUTCOME_CODES, NotFinished, RampupError, SchedulerError, UsageError
from rampup.rundir.files import RunDir, State
from rampup.runs.create import ask_to_stop
from rampup.runs.state import look, state_of, states_of
from rampup.schedulers.slurm.query import FRESH_S
from rampup.study.members import Study, find, find_lost_submissions
from rampup.study.stop import cancel_all, is_being_started, stop_starting

NAMED = 10
"""So many runs that failed are named with their cause."""
BAD = ("failed", "timeout", "cancelled")
"""The worst first."""


def refuse_both(study: str | None, wanted: Any) -> None:
    if study is not None and wanted:
        raise UsageError(
            "give runs, or --study, not both", "rampup list --study STUDY shows its runs"
        )


def states_by_run(runs: Iterable[RunDir], fresh_s: float = FRESH_S) -> dict[RunDir, State]:
    seen = [look(run) for run in runs]
    found = states_of(seen, fresh_s)
    return {one.run: found[one.run.path] for one in seen}


def exit_code_of(states: Iterable[State]) -> int:
    """Of the worst."""
    there = {state.name for state in states}
    return next((OUTCOME_CODES[name] for name in BAD if name in there), 0)


def tell_states(states: Mapping[RunDir, State]) -> None:
    """How many are how; those that failed by their ids, with the cause in one line."""
    found = Counter(state.name for state in states.values())
    order = ("completed", "running", "pending", *BAD)
    words = [
        f"{found[name]} {'timed out' if name == 'timeout' else name}"
        for name in order
        if found[name]
    ]
    output.say(f"{output.count(len(states), 'run')}: {', '.join(words)}")
    bad = [(run, state) for run, state in states.items() if state.name in ("failed", "timeout")]
    for run, state in bad[:NAMED]:
        output.say(f"  {run.id} {state.name}: {cause_of(run, state)}")
    if len(bad) > NAMED:
        output.say(f"  and {len(bad) - NAMED} more")


def cause_of(run: RunDir, state: State) -> str:
    """In one line, as `rampup why` tells it."""
    from rampup.diagnose.why.explain import explain  # not for runs that went well

    answer = explain(run, state)
    cause = answer.finding.cause if answer.known else state.cause or state_of(run).cause
    return " ".join(cause.split()) or "no cause is known"


def as_objects(states: Mapping[RunDir, State]) -> list[dict[str, Any]]:
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


# wait ---------------------------------------------------------------------------------------------


def wait_for(name: str, timeout: float | None, as_json: bool) -> int:
    """Until all runs have ended, and nobody starts more of them."""
    study, begun = find(name), time.monotonic()
    jobs: dict[tuple[str, str], list[str]] = {}
    while True:
        more = is_being_started(study)  # asked first: what it makes until then is seen
        if not more:
            find_lost_submissions(study.runs(), jobs)
        waited = time.monotonic() - begun
        states = states_by_run(study.runs(), patience(waited))
        if not more and all(state.ended for state in states.values()):
            break
        if timeout is not None and waited >= timeout:
            left = sum(not state.ended for state in states.values())
            raise NotFinished(
                f"{output.count(left, 'run')} of study {name} still to end",
                f"rampup list --study {name}",
            )
        time.sleep(POLL_S)
    code = exit_code_of(states.values())
    if as_json:
        output.emit_json({"study": name, "exit_code": code, "runs": as_objects(states)})
    else:
        tell_states(states)
        output.next_step(f"rampup list --study {name}")
    return code


# cancel -------------------------------------------------------------------------------------------


def cancel_study(name: str, save: bool, dry_run: bool, as_json: bool) -> int:
    study = find(name)
    if not is_being_started(study):
        find_lost_submissions(study.runs())
    before = states_by_run(study.runs(), 0.0)
    problem = None if dry_run else stop(study, save)
    after = states_by_run(study.runs(), 0.0)
    said = {run.id: words_of(run, before, after, dry_run) for run in after}
    if as_json:
        output.emit_json(said)
    else:
        for words, count in Counter(said.values()).items():
            output.say(f"{output.count(count, 'run')}: {words}")
    if problem is not None:
        raise problem
    if not as_json:
        output.next_step(f"rampup list --study {name}")
    return 0


def stop(study: Study, save: bool) -> RampupError | None:
    """Who starts runs, and all that go on."""
    # a sweep of this machine that is stopped gives its runs little time, so they come first
    if save:
        here = [run for run in going_on(study) if "pid" in (run.recorded("submitted") or {})]
        if here and (problem := end(here, save)):
            return problem
    stop_starting(study)
    find_lost_submissions(study.runs())
    return end(going_on(study), save)


def going_on(study: Study) -> list[RunDir]:
    return [run for run, state in states_by_run(study.runs(), 0.0).items() if not state.ended]


def end(going: Sequence[RunDir], save: bool) -> RampupError | None:
    """All of them; the last problem is returned, and has not kept the others from being ended."""
    problem: RampupError | None = None
    saving = [
        run for run, state in states_by_run(going).items() if save and state.name == "running"
    ]
    # first: none of them begins meanwhile
    cancel_all([run for run in going if run not in saving], saving)
    for run in saving:
        try:
            ask_to_stop(run)
        except RampupError as error:
            problem = error
    deadline = time.monotonic() + (SAVE_WITHIN_S if saving else END_WITHIN_S)
    left = list(going)
    while left and time.monotonic() < deadline and not (problem and set(left) <= set(saving)):
        time.sleep(POLL_S)
        left = [run for run, state in states_by_run(left, 0.3).items() if not state.ended]
    if left and problem is None:
        problem = SchedulerError(
            f"{output.count(len(left), 'run')} told to end and not yet gone", "rampup wait"
        )
    return problem


def words_of(
    run: RunDir, before: Mapping[RunDir, State], after: Mapping[RunDir, State], dry_run: bool
) -> str:
    was = next((state for other, state in before.items() if other.path == run.path), None)
    if was is not None and was.ended:
        return f"already {was.name}"
    return "would be cancelled" if dry_run else after[run].name if after[run].ended else "goes on"
