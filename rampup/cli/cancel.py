"""`rampup cancel`: stop runs, or a whole study, and say so when they have stopped.

Runs that are named are stopped one by one, each with its own answer. The runs of a study are
stopped together: first the sweep that still starts some, then all with few words to Slurm.
"""

import time
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from rampup.cli import output
from rampup.cli.options import complete_run, dry_run_option, json_option, study_option
from rampup.cli.selection import Selection, select, states_by_run, title
from rampup.errors import RampupError, SchedulerError, UsageError
from rampup.rundir.files import RunDir
from rampup.rundir.trust import may_change, refuse_foreign
from rampup.runs.state import State, state_of
from rampup.runs.stop import ask_to_stop, cancel

if TYPE_CHECKING:
    from rampup.study.members import Study

END_WITHIN_S = 20.0
SAVE_WITHIN_S = 600.0
"""A step of a large model and its checkpoint may take minutes."""
POLL_S = 0.2
STILL = "still running: "

Answers = dict[str, str]
"""What became of each run, by its id."""


@click.command()
@click.argument("wanted", nargs=-1, shell_complete=complete_run, metavar="[RUN]...")
@study_option("All active runs of this study, and the sweep that is starting them.")
@click.option(
    "--save",
    is_flag=True,
    help="Finish the current step and save first; `rampup resume` continues from there.",
)
@dry_run_option
@json_option
def command(
    wanted: tuple[str, ...], study: str | None, save: bool, dry_run: bool, as_json: bool
) -> int:
    """Stop runs. RUN is an id or its first letters, a job id, a name that only one run has, or a
    path; there is no default."""
    if study is None and not wanted:
        raise UsageError("which run? there is no default", "rampup cancel RUN, or --study STUDY")
    selection = select(wanted, study)
    for run in selection.named:
        refuse_foreign(run, "stop it")
    if selection.study is None:
        answers, problem = cancel_each(selection.runs(), save, dry_run)
    else:
        answers, problem = cancel_together(selection, save, dry_run)
    if as_json:
        output.emit_json(answers)
    elif selection.study is None:
        for run in selection.named:
            if not is_repeated(run, answers[run.id], problem):
                output.say(f"{title(run)} {answers[run.id]}")
    else:
        for words, count in Counter(answers.values()).items():
            output.say(f"{output.count(count, 'run')}: {words}")
    if problem is not None:
        raise problem
    if not as_json:
        output.next_step("rampup list" if study is None else f"rampup list --study {study}")
    return 0


# runs that are named ------------------------------------------------------------------------------


def cancel_each(
    runs: Sequence[RunDir], save: bool, dry_run: bool
) -> tuple[Answers, RampupError | None]:
    """Cancel one after the other. The last problem is returned, and has not kept the others from
    being cancelled."""
    answers: Answers = {}
    problem: RampupError | None = None
    for run in runs:
        try:
            answers[run.id] = cancel_one(run, save, dry_run)
        except RampupError as error:
            answers[run.id], problem = f"{STILL}{error.message}", error
    return answers, problem


def is_repeated(run: RunDir, answer: str, problem: RampupError | None) -> bool:
    """Whether the error at the end says of this run what its own line would say."""
    return problem is not None and answer == f"{STILL}{problem.message}" and run.id in answer


def cancel_one(run: RunDir, save: bool, dry_run: bool) -> str:
    state = state_of(run)
    if state.ended:
        return f"already {state.name}"
    if dry_run:
        return "would be saved and cancelled" if save else "would be cancelled"
    if save and state.name == "running":
        ask_to_stop(run)
        state = wait_until_ended(run, SAVE_WITHIN_S)
    else:
        cancel(run)
        state = wait_until_ended(run, END_WITHIN_S)
    if not state.ended:
        raise SchedulerError(
            f"{run.id} was cancelled, but is still {state.name}", f"rampup wait {run.id}"
        )
    return f"{state.name}: {state.cause}" if save and state.cause else state.name


def wait_until_ended(run: RunDir, within_s: float) -> State:
    """Slurm needs a moment to end a job; after a while the state is returned as it is."""
    deadline = time.monotonic() + within_s
    while not (state := state_of(run, fresh_s=0.3)).ended and time.monotonic() < deadline:
        time.sleep(POLL_S)
    return state


# a study ------------------------------------------------------------------------------------------


def cancel_together(
    selection: Selection, save: bool, dry_run: bool
) -> tuple[Answers, RampupError | None]:
    study = selection.study
    assert study is not None
    before = {run.path: state for run, state in states_by_run(selection.runs(), 0.0).items()}
    problem = None if dry_run else stop_study(study, save)
    answers: Answers = {}
    for run, state in states_by_run(selection.runs(), 0.0).items():
        was = before.get(run.path)
        if was is not None and was.ended:
            answers[run.id] = f"already {was.name}"
        elif not may_change(run.path):
            answers[run.id] = "not yours, left alone"
        elif dry_run:
            answers[run.id] = "would be cancelled"
        else:
            answers[run.id] = state.name if state.ended else "still running"
    return answers, problem


def stop_study(study: "Study", save: bool) -> RampupError | None:
    """Stop the sweep that starts runs, and all runs that are not at their end."""
    from rampup.study.stop import stop_starting

    # a sweep of this machine that is stopped gives its runs little time, so they come first
    if save:
        here = [run for run in find_unfinished(study) if "pid" in (run.recorded("submitted") or {})]
        if here and (problem := end_runs(here, save)):
            return problem
    stop_starting(study)
    return end_runs(find_unfinished(study), save)


def find_unfinished(study: "Study") -> list[RunDir]:
    mine = [run for run in study.runs() if may_change(run.path)]
    return [run for run, state in states_by_run(mine, 0.0).items() if not state.ended]


def end_runs(runs: Sequence[RunDir], save: bool) -> RampupError | None:
    """End all of them. The last problem is returned, and has not kept the others from being
    ended."""
    from rampup.study.stop import cancel_all

    problem: RampupError | None = None
    running = [run for run, state in states_by_run(runs).items() if state.name == "running"]
    saving = running if save else []
    # first: none of them begins meanwhile
    cancel_all([run for run in runs if run not in saving], saving)
    for run in saving:
        try:
            ask_to_stop(run)
        except RampupError as error:
            problem = error
    deadline = time.monotonic() + (SAVE_WITHIN_S if saving else END_WITHIN_S)
    left = list(runs)
    while left and time.monotonic() < deadline and not (problem and set(left) <= set(saving)):
        time.sleep(POLL_S)
        left = [run for run, state in states_by_run(left, 0.3).items() if not state.ended]
    if left and problem is None:
        problem = SchedulerError(
            f"{output.count(len(left), 'run')} cancelled, still shutting down", "rampup wait"
        )
    return problem
