"""`rampup wait`: return when a run, or every run of a study, has ended. The exit code: 0, 100
failed, 101 not yet, 103 cancelled, 104 timed out."""

import time

import click

from rampup.cli import output
from rampup.cli.ending import report_end
from rampup.cli.follow import poll_interval_s
from rampup.cli.options import json_option, run_argument, study_option
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
@run_argument
@study_option("Wait for all runs of this study; the exit code is that of the worst.")
@click.option(
    "--timeout", type=float, metavar="SECONDS", help="Give up after this time, with exit code 101."
)
@json_option
def command(run: str | None, study: str | None, timeout: float | None, as_json: bool) -> int:
    """Wait until a run ends; the exit code says how. RUN is an id or its first letters, a job id, a
    name or a path (default: the latest run of this directory)."""
    selection = select([run], study)
    if study is None and not as_json:
        output.say(title(selection.named[0]))
    states = wait_for(selection, timeout)
    if study is None:
        return report_end(selection.named[0], None, as_json, followed=False)
    code = worst_exit_code(states.values())
    if as_json:
        output.emit_json({"study": study, "exit_code": code, "runs": states_json(states)})
    else:
        report_states(states)
        output.next_step(f"rampup list --study {study}")
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


def not_finished(selection: Selection, states: dict[RunDir, State]) -> NotFinished:
    if selection.study is not None:
        name = selection.study.name
        left = output.count(sum(not state.ended for state in states.values()), "run")
        return NotFinished(f"not ended yet: {left} of study {name}", f"rampup list --study {name}")
    (run,) = selection.named
    return NotFinished(f"run {run.id} is still {states[run].name}", f"rampup logs -f {run.id}")
