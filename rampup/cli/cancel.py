"""`rampup cancel`: stop runs, and say so when they have stopped."""

import time

import click

from rampup.cli import output
from rampup.cli.arguments import complete_run, dry_run_option, json_option, study_option
from rampup.errors import RampupError, SchedulerError, UsageError
from rampup.rundir import find as runs
from rampup.rundir.files import RunDir
from rampup.runs.state import State, state_of
from rampup.runs.stop import ask_to_stop, cancel

END_WITHIN_S = 20.0
SAVE_WITHIN_S = 600.0
"""A step of a large model and its checkpoint may take minutes."""


@click.command()
@click.argument("wanted", nargs=-1, shell_complete=complete_run, metavar="[RUN]...")
@study_option("All runs of this study that go on, and who still starts some.")
@click.option(
    "--save",
    is_flag=True,
    help="Let it finish its step and save first; `rampup resume` goes on there.",
)
@dry_run_option
@json_option
def command(
    wanted: tuple[str, ...], study: str | None, save: bool, dry_run: bool, as_json: bool
) -> int:
    """Stop runs. RUN is an id or a unique prefix of one; there is no default."""
    if study is not None:
        from rampup.cli.studies import cancel_study, refuse_both

        refuse_both(study, wanted)
        return cancel_study(study, save, dry_run, as_json)
    if not wanted:
        raise UsageError("which run? there is no default", "rampup cancel RUN, or --study STUDY")
    states: dict[str, str] = {}
    problem: RampupError | None = None
    for run in [runs.find(name) for name in wanted]:
        try:
            states[run.id] = cancel_one(run, save, dry_run)
        except RampupError as error:  # the others are cancelled all the same
            states[run.id], problem = f"goes on: {error.message}", error
    if as_json:
        output.emit_json(states)
    else:
        for run_id, words in states.items():
            output.say(f"{run_id} {words}")
    if problem is not None:
        raise problem
    if not as_json:
        output.next_step("rampup list")
    return 0


def cancel_one(run: RunDir, save: bool, dry_run: bool) -> str:
    state = state_of(run)
    if state.ended:
        return f"already {state.name}"
    if dry_run:
        return "would be saved and cancelled" if save else "would be cancelled"
    if save and state.name == "running":
        ask_to_stop(run)
        state = state_when_ended(run, SAVE_WITHIN_S)
    else:
        cancel(run)
        state = state_when_ended(run, END_WITHIN_S)
    if not state.ended:
        raise SchedulerError(
            f"{run.id} was told to end and is still {state.name}", f"rampup wait {run.id}"
        )
    return f"{state.name}: {state.cause}" if save and state.cause else state.name


def state_when_ended(run: RunDir, within_s: float) -> State:
    """Slurm needs a moment to end a job; after a while we say what is."""
    deadline = time.monotonic() + within_s
    while not (state := state_of(run, fresh_s=0.3)).ended and time.monotonic() < deadline:
        time.sleep(0.2)
    return state
