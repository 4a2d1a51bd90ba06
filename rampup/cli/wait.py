"""`rampup wait`: until a run ends. Its exit code: 0, 100 failed, 101 not yet, 103 cancelled, 104
timed out."""

import time

import click

from rampup.cli.arguments import json_option, run_argument, study_option
from rampup.cli.ending import tell_end
from rampup.errors import NotFinished
from rampup.rundir import find as runs
from rampup.runs.state import state_of

POLL_S = 0.2


@click.command()
@run_argument
@study_option("Wait for all runs of this study; the exit code is that of the worst.")
@click.option(
    "--timeout", type=float, metavar="SECONDS", help="Give up after so long, with exit code 101."
)
@json_option
def command(run: str | None, study: str | None, timeout: float | None, as_json: bool) -> int:
    """Wait until a run ends; the exit code tells how. RUN is an id or a prefix of one (default: the
    latest)."""
    if study is not None:
        from rampup.cli.studies import refuse_both, wait_for

        refuse_both(study, run)
        return wait_for(study, timeout, as_json)
    found = runs.find(run)
    begun = time.monotonic()
    while not state_of(found, patience(time.monotonic() - begun)).ended:
        if timeout is not None and time.monotonic() - begun >= timeout:
            raise NotFinished(
                f"run {found.id} is still {state_of(found).name}", f"rampup logs -f {found.id}"
            )
        time.sleep(POLL_S)
    return tell_end(found, None, as_json)


def patience(waited_s: float) -> float:
    """How old an answer of Slurm may be: who has waited for an hour can wait a little longer."""
    return min(30.0, 2.0 + waited_s / 20)
