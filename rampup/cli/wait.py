"""`rampup wait`: return when runs, or every run of a study, have ended. The exit code: 0, 100
failed, 101 not yet, 103 cancelled, 104 timed out."""

import time

import click

from rampup.cli import output
from rampup.cli.ending import report_end
from rampup.cli.follow import poll_interval_s
from rampup.cli.options import complete_run, json_option, study_option
from rampup.cli.selection import (
    Selection,
    report_states,
    select,
    states_by_run,
    states_json,
    title,
    worst_exit_code,
)
from rampup.errors import NotFinished, Refused
from rampup.rundir.files import RunDir
from rampup.runs.state import UNREADABLE, State

POLL_S = 0.2


@click.command()
@click.argument("wanted", nargs=-1, shell_complete=complete_run, metavar="[RUN]...")
@study_option("Wait for all runs of this study; the exit code is that of the worst.")
@click.option(
    "--timeout", type=float, metavar="SECONDS", help="Give up after this time, with exit code 101."
)
@json_option
def command(
    wanted: tuple[str, ...], study: str | None, timeout: float | None, as_json: bool
) -> int:
    """Wait until runs end. The exit code says how a run ended; of several runs, how the worst did.
    RUN is an id or its first letters, a job id, a name or a path (default: the latest run of this
    directory)."""
    latest: tuple[str | None, ...] = (None,) if study is None else ()
    selection = select(wanted or latest, study)
    is_one = len(selection.named) == 1
    if is_one and not as_json:
        output.say(title(selection.named[0]))
    states = wait_for(selection, timeout)
    if is_one:
        return report_end(selection.named[0], None, as_json, followed=False)
    code = worst_exit_code(states.values())
    if as_json:
        output.emit_json({"study": study, "exit_code": code, "runs": states_json(states)})
    else:
        report_states(states)
        output.next_step(list_command(selection))
    return code


def wait_for(selection: Selection, timeout_s: float | None) -> dict[RunDir, State]:
    """Return the states when all runs have ended and nobody starts more of them."""
    begun = time.monotonic()
    while True:
        more = selection.is_being_started()  # asked first: what it makes until then is seen
        states = states_by_run(selection.runs(), poll_interval_s(time.monotonic() - begun))
        closed = [state for state in states.values() if state.name == UNREADABLE]
        if closed:
            raise Refused(f"the end can't be seen: {closed[0].cause}", "ask its owner")
        if not more and all(state.ended for state in states.values()):
            return states
        if timeout_s is not None and time.monotonic() - begun >= timeout_s:
            raise not_finished(selection, states)
        time.sleep(POLL_S)


def list_command(selection: Selection) -> str:
    study = selection.study
    return f"rampup list --study {study.name}" if study is not None else "rampup list"


def not_finished(selection: Selection, states: dict[RunDir, State]) -> NotFinished:
    if len(selection.named) != 1:
        left = output.count(sum(not state.ended for state in states.values()), "run")
        whole = f" of study {selection.study.name}" if selection.study else f" of {len(states)}"
        return NotFinished(f"not ended yet: {left}{whole}", list_command(selection))
    (run,) = selection.named
    return NotFinished(f"run {run.id} is still {states[run].name}", f"rampup logs -f {run.id}")
