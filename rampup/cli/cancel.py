"""`rampup cancel`: stop runs, and say so when they have stopped."""

import time

import click

from rampup import runs
from rampup.cli import output
from rampup.cli.arguments import complete_run, dry_run_option, json_option
from rampup.rundir import RunDir, State
from rampup.states import state_of
from rampup.submit import cancel

END_WITHIN_S = 10.0


@click.command()
@click.argument("wanted", nargs=-1, required=True, shell_complete=complete_run, metavar="RUN...")
@dry_run_option
@json_option
def command(wanted: tuple[str, ...], dry_run: bool, as_json: bool) -> int:
    """Stop runs. RUN is an id or a unique prefix of one; there is no default."""
    found = [runs.find(name) for name in wanted]
    states = {}
    for run in found:
        if state_of(run).ended:
            states[run.id] = f"already {state_of(run).name}"
        elif dry_run:
            states[run.id] = "would be cancelled"
        else:
            cancel(run)
            states[run.id] = state_when_ended(run).name
    if as_json:
        output.emit_json(states)
        return 0
    for run_id, state in states.items():
        output.say(f"{run_id} {state}")
    output.next_step("rampup list")
    return 0


def state_when_ended(run: RunDir) -> State:
    """Slurm needs a moment to end a job; after a few seconds we say what is."""
    deadline = time.monotonic() + END_WITHIN_S
    while not (state := state_of(run, fresh_s=0.3)).ended and time.monotonic() < deadline:
        time.sleep(0.2)
    return state
